"""A function that specs of these tests call."""


def double(x: int) -> int:
    return 2 * x

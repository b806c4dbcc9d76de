"""The shell: commands of specs as processes that never outlive whoever asked for them."""

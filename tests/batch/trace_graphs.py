"""Graphs of the shape of well-known scientific workflows, of any size, as jobs by name with what each needs.

Fan-outs, pairs, barriers, pipelines in parallel, and joins of joins, as published traces of these workflows have them.
"""

from __future__ import annotations

from collections.abc import Callable

Graph = dict[str, list[str]]


def montage(images: int) -> Graph:
    """A mosaic: images are projected, overlaps fitted in pairs, and backgrounds corrected after a barrier."""
    project = [f"mProject_{k}" for k in range(images)]
    graph: Graph = {name: [] for name in project}
    pairs = [(k, k + step) for step in (1, 3) for k in range(images - step)]
    graph |= {f"mDiffFit_{a}_{b}": [project[a], project[b]] for a, b in pairs}
    graph["mConcatFit"] = [f"mDiffFit_{a}_{b}" for a, b in pairs]
    graph["mBgModel"] = ["mConcatFit"]
    graph |= {f"mBackground_{k}": [project[k], "mBgModel"] for k in range(images)}
    graph["mImgtbl"] = [f"mBackground_{k}" for k in range(images)]
    graph["mAdd"] = ["mImgtbl", *graph["mImgtbl"]]
    graph["mViewer"] = ["mAdd"]
    return graph


def genome(chromosomes: int, individuals: int = 4, populations: int = 3) -> Graph:
    """1000Genome: parts of each chromosome are merged and sifted, then compared for each population."""
    graph: Graph = {}
    for c in range(chromosomes):
        parts = [f"individuals_{c}_{k}" for k in range(individuals)]
        graph |= {part: [] for part in parts}
        graph |= {f"merge_{c}": parts, f"sifting_{c}": []}
        for p in range(populations):
            graph[f"overlap_{c}_{p}"] = graph[f"frequency_{c}_{p}"] = [f"merge_{c}", f"sifting_{c}"]
    return graph


def seismology(stations: int) -> Graph:
    """A wide fan of deconvolutions, and one join."""
    fan = [f"decon_{k}" for k in range(stations)]
    return {**{name: [] for name in fan}, "sift": fan}


def epigenomics(lanes: int, parts: int = 4) -> Graph:
    """Lanes of parallel pipelines of four steps, joined twice."""
    graph: Graph = {}
    for lane in range(lanes):
        graph[f"split_{lane}"] = []
        for k in range(parts):
            before = f"split_{lane}"
            for step in ("filter", "sanger", "bfq", "map"):
                graph[f"{step}_{lane}_{k}"] = [before]
                before = f"{step}_{lane}_{k}"
        graph[f"lane_{lane}"] = [f"map_{lane}_{k}" for k in range(parts)]
    graph["merge"] = [f"lane_{lane}" for lane in range(lanes)]
    return {**graph, "index": ["merge"], "pileup": ["index"]}


def cybershake(sites: int, variations: int = 4) -> Graph:
    """Two joins over the whole width beside each other, each behind a layer of its own."""
    graph: Graph = {}
    synths = [(s, v) for s in range(sites) for v in range(variations)]
    graph |= {f"extract_{s}": [] for s in range(sites)}
    graph |= {f"synth_{s}_{v}": [f"extract_{s}"] for s, v in synths}
    graph |= {f"peak_{s}_{v}": [f"synth_{s}_{v}"] for s, v in synths}
    graph["zip_seis"] = [f"synth_{s}_{v}" for s, v in synths]
    graph["zip_psa"] = [f"peak_{s}_{v}" for s, v in synths]
    return graph


SHAPES: dict[str, Callable[[int], Graph]] = {
    "montage": montage,
    "genome": genome,
    "seismology": seismology,
    "epigenomics": epigenomics,
    "cybershake": cybershake,
}

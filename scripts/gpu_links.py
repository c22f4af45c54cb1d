#!/usr/bin/env python3
"""Short rows from the JSON of `weft bench links` and `weft bench scale`, for scripts/gpu_links.

Each subcommand but the last three prints lines of a name, a tab and a text. `curves` prints a machine
profile's curves of links; `tokens` a completion's token ids; `rank` the process of a rank.
"""
import json
import os
import pathlib
import statistics
import sys

PUBLISHED_RING_GBPS = 370  # all-reduce over NVLink 4 without the switches' sums, 8 GPUs


def load(path):
    return json.loads(pathlib.Path(path).read_text())


def row(name, text):
    print(f"{name}\t{text}")


def size(n_bytes):
    for unit, power in (("G", 30), ("M", 20), ("K", 10)):
        if n_bytes >= 1 << power and n_bytes % (1 << power) == 0:
            return f"{n_bytes >> power}{unit}"
    return str(n_bytes)


def shares(gbps, found):
    text = ""
    for key, name in (("data_sheet", "data sheet"), ("measured_peak", "measured peak")):
        if found[key]:
            text += f", {100 * gbps / found[key]['gbps']:.1f} % of the {name}"
    return text


def sums(path):
    found = load(path)
    for one in found["sums"]:
        times = ", ".join(f"{way} {us:.2f}" for way, us in one["us"].items() if us is not None)
        wrong = f"  FAILED: {one['wrong']} wrong values" if one["wrong"] else ""
        row(f"sum in a graph, {found['ranks']} ranks", f"{size(one['bytes'])}: {times} us{wrong}")


def pairs(path):
    found = load(path)
    bound = "" if found["bound"] else ", not bound"
    for way in found["ways"]:
        one = [v for line in way["one_way_gbps"] for v in line if v is not None]
        two = [v for line in way["two_way_gbps"] for v in line if v is not None]
        late = [v for line in way["latency_us"] for v in line if v is not None]
        if not one:
            continue
        text = (f"one way {min(one):.1f} to {max(one):.1f} GB/s, two ways {min(two):.1f} to "
                f"{max(two):.1f}, {statistics.median(late):.2f} us{shares(max(one), found)}")
        if way["slow"]:
            text += "; SLOW: " + ", ".join(
                f"{p['from']}-{p['to']} {p['gbps']:.1f} ({p['path']})" for p in way["slow"])
        if way["wrong"]:
            text += f"  FAILED: {way['wrong']} wrong values"
        row(f"pairs, {way['way'][:20]}{bound}", text)
    if found.get("no_copies"):
        row("pairs", "no copies between GPUs: " + found["no_copies"])


def best(found):
    rows = [(times["busbw_gbps"], one["bytes"], one.get("wire_gbps"))
            for one in found["rows"]
            for times in (one["out_of_place"], one["in_place"]) if times]
    return max(rows)


def sweep(path):
    found = load(path)
    gbps, n_bytes, wire = best(found)
    name = pathlib.Path(path).stem
    text = f"busbw {gbps:.1f} GB/s at {size(n_bytes)}{shares(gbps, found)}"
    if wire:
        text += f", on the wire {wire:.1f}"
    if name == "all-reduce-ring":
        text += f"; published: {PUBLISHED_RING_GBPS}"
    if found["pattern"] == "send-recv" and found["measured_peak"]:
        large = [one["out_of_place"]["busbw_gbps"] for one in found["rows"] if one["bytes"] >= 4 << 20]
        if large:
            share = 100 * min(large) / found["measured_peak"]["gbps"]
            text += f"; two ways, 4 MB and more: at least {share:.1f} % of the peak each way (aim 92.4)"
    if found["wrong"]:
        text += f"  FAILED: {found['wrong']} wrong values"
    row(name, text)


def scale(path):
    found = load(path)
    for layout in found["layouts"]:
        parts = []
        for one in layout["cases"]:
            what = f"batch {one['batch']}" if one["work"] == "decode" else f"prefill {one['tokens']}"
            if not one["measured"]:
                parts.append(f"{what} does not fit")
                continue
            ms = one["tpot_ms"] if one["work"] == "decode" else one["ttft_ms"]
            text = f"{what} {ms:.2f} ms"
            if one["efficiency"] is not None:
                text += f" eff {100 * one['efficiency']:.0f} %"
            if one.get("read_share") is not None:
                text += f" reads {100 * one['read_share']:.0f} %"
            if one["error"] is not None:
                text += f" plan {100 * one['error']:+.0f} %"
            parts.append(text)
        if layout.get("failure"):
            parts = ["FAILED: " + layout["failure"]]
        elif layout["same_tokens"] is False:
            parts.append("FAILED: other tokens")
        row(layout["layout"], "; ".join(parts))
    for verdict in found["verdicts"]:
        agrees = "as ranked" if verdict["agrees"] else f"the plan ranks {verdict['ranked_first']} first"
        row(verdict["case"], f"fastest {verdict['fastest']}, {agrees}")
    if found["median_error"] is not None:
        row("predictions", f"median error {100 * found['median_error']:.1f} %")
    elif found.get("no_prediction"):
        row("predictions", "none: " + found["no_prediction"])


def torch(path):
    for line in pathlib.Path(path).read_text().splitlines():
        one = json.loads(line)
        what = f"batch {one['batch']}" if one["work"] == "decode" else f"prefill {one['tokens']}"
        row(f"torch TP {one['tp']}", f"{what} {one['ms']:.2f} ms ({one['mode']})")


def curve(points, indent):
    return [f"{indent}bytes: [{', '.join(str(b) for b, _ in points)}]",
            f"{indent}microseconds: [{', '.join(f'{us:.2f}' for _, us in points)}]"]


def curves(*paths):
    """YAML for configs/profiles: the time of each size, as `weft plan` reads it."""
    sums_of, sends = [], []
    for path in paths:
        found = load(path)
        if found["pattern"] not in ("all-reduce", "send-recv") or found["graph"]:
            continue
        times = "in_place" if found["pattern"] == "all-reduce" else "out_of_place"
        points = [(one["bytes"], one[times]["us"]) for one in found["rows"]]
        source = f"weft bench links, {found['ranks']} x {found['device']}: {found['transport']}"
        if found["pattern"] == "all-reduce":
            sums_of.append((found["ranks"], source, points))
        else:
            sends.append((source, points))
    lines = []
    if sums_of:
        lines.append("all_reduce:")
    for ranks, source, points in sorted(sums_of):
        lines += ["  - implementation: \"weft\"", f"    ranks: {ranks}",
                  f"    source: {json.dumps(source)}"] + curve(points, "    ")
    for source, points in sends[:1]:
        lines += ["send_recv_inside:", f"  - source: {json.dumps(source)}"] + curve(points, "    ")
    print("\n".join(lines))


def tokens():
    for line in sys.stdin:
        print(json.loads(line)["token_ids"])


def environment(process, binary):
    try:
        if os.readlink(process / "exe") == os.path.realpath(binary):
            return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        pass
    return []


def rank(binary, wanted):
    """The process of that rank in this script's own job, not its guardian; "any": any of the job."""
    mark = f"WEFT_GPU_LINKS={os.environ['WEFT_GPU_LINKS']}".encode()
    for process in sorted(pathlib.Path("/proc").glob("[0-9]*")):
        variables = environment(process, binary)
        if mark not in variables:
            continue
        if wanted != "any":
            guards = (process / "comm").read_text().strip() == "weft-guardian"
            if guards or f"OMPI_COMM_WORLD_RANK={wanted}".encode() not in variables:
                continue
        print(process.name)
        return


if __name__ == "__main__":
    commands = {f.__name__: f for f in (sums, pairs, sweep, scale, torch, curves, tokens, rank)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(f"usage: gpu_links.py {'|'.join(commands)} ARGUMENT…")
    commands[sys.argv[1]](*sys.argv[2:])

#!/usr/bin/env python3
"""Times a tensor-parallel Llama in PyTorch with random weights: the peer beside `weft bench scale`.

One JSON object a line: {"work", "batch", "tokens", "tp", "mode", "ms"}, of the slowest rank. The layers
are split as weft splits them (columns of the first product of each half, rows of the second, an
all-reduce after each); attention is scaled_dot_product_attention over a cache of random keys and
values. Decode steps are captured as a CUDA graph with their all-reduces where that can be.
"""
import argparse
import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.nn.functional as F
import yaml


def integers(text):
    return [int(part) for part in text.split(",") if part]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="configs/models/deepseek-coder-33b.yaml")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--batch", type=integers, default=[1])
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--prefill", type=integers, default=[])
    parser.add_argument("--layers", type=int, help="fewer than the model has: to try it out")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    return parser.parse_args()


class Layer:
    """This rank's part of a layer; `keys` and `values` are [batch, kv heads, context, head dim]."""

    def __init__(self, facts, tp, make):
        hidden, dim = facts["hidden"], facts["head_dim"]
        self.heads = facts["n_heads"] // tp
        self.kv_heads = max(1, facts["n_kv_heads"] // tp)
        self.dim = dim
        ffn = -(-facts["ffn"] // tp)
        self.qkv = make((self.heads + 2 * self.kv_heads) * dim, hidden)
        self.out = make(hidden, self.heads * dim)
        self.gate_up = make(2 * ffn, hidden)
        self.down = make(hidden, ffn)
        self.norm = torch.ones(hidden, dtype=self.qkv.dtype, device=self.qkv.device)

    def forward(self, x, keys, values, reduce):
        batch, rows, _ = x.shape
        qkv = F.linear(F.rms_norm(x, self.norm.shape, self.norm), self.qkv)
        q, k, v = qkv.split([self.heads * self.dim] + 2 * [self.kv_heads * self.dim], dim=-1)
        q = q.view(batch, rows, self.heads, self.dim).transpose(1, 2)
        k = k.view(batch, rows, self.kv_heads, self.dim).transpose(1, 2)
        v = v.view(batch, rows, self.kv_heads, self.dim).transpose(1, 2)
        if keys is None:
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            keys[:, :, -rows:] = k
            values[:, :, -rows:] = v
            a = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        a = a.transpose(1, 2).reshape(batch, rows, self.heads * self.dim)
        x = x + reduce(F.linear(a, self.out))
        gate, up = F.linear(F.rms_norm(x, self.norm.shape, self.norm), self.gate_up).chunk(2, -1)
        return x + reduce(F.linear(F.silu(gate) * up, self.down))


class Model:
    def __init__(self, facts, args, device):
        def make(rows, columns):
            return torch.empty(rows, columns, dtype=torch.bfloat16, device=device).normal_(0, 0.02)

        self.args = args
        self.device = device
        self.facts = facts
        n_layers = args.layers or facts["n_layers"]
        self.layers = [Layer(facts, args.tp, make) for _ in range(n_layers)]
        self.embedding = make(facts["vocab"], facts["hidden"])
        self.head = make(-(-facts["vocab"] // args.tp), facts["hidden"])

    def reduce(self, x):
        if self.args.tp > 1:
            dist.all_reduce(x)
        return x

    def forward(self, ids, caches):
        x = F.embedding(ids, self.embedding)
        for layer, (keys, values) in zip(self.layers, caches):
            x = layer.forward(x, keys, values, self.reduce)
        logits = F.linear(x[:, -1], self.head)
        best = logits.float().max(dim=-1).values
        if self.args.tp > 1:
            dist.all_reduce(best, op=dist.ReduceOp.MAX)
        return best

    def caches(self, batch, context):
        layer = self.layers[0]
        shape = (batch, layer.kv_heads, context, layer.dim)

        def noise():
            return torch.empty(shape, dtype=torch.bfloat16, device=self.device).normal_()

        return [(noise(), noise()) for _ in self.layers]


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def median_ms(work, steps, device, warm_up=3):
    times = []
    for i in range(warm_up + steps):
        settle(device)
        start = time.perf_counter()
        work()
        settle(device)
        if i >= warm_up:
            times.append((time.perf_counter() - start) * 1e3)
    mine = torch.tensor([statistics.median(times)], dtype=torch.float64, device=device)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return float(mine)


def captured(work):
    """`work` as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def report(rank, **fields):
    if rank == 0:
        print(json.dumps(fields), flush=True)


def time_decode(model, rank, batch):
    args, device = model.args, model.device
    ids = torch.randint(0, model.facts["vocab"], (batch, 1), device=device)
    caches = model.caches(batch, args.context)

    def step():
        model.forward(ids, caches)

    mode = "eager"
    if device.type == "cuda":
        try:
            step = captured(step)
            mode = "graph"
        except RuntimeError as error:
            print(f"decode, batch {batch}: no graph: {error}", file=sys.stderr)
    report(rank, work="decode", batch=batch, tokens=args.context, tp=args.tp, mode=mode,
           ms=round(median_ms(step, args.steps, device), 3))


def time_prefill(model, rank, tokens):
    ids = torch.randint(0, model.facts["vocab"], (1, tokens), device=model.device)
    caches = [(None, None)] * len(model.layers)
    ms = median_ms(lambda: model.forward(ids, caches), max(3, model.args.steps // 4), model.device, 2)
    report(rank, work="prefill", batch=1, tokens=tokens, tp=model.args.tp, mode="eager",
           ms=round(ms, 3))


def worker(rank, args, port):
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    backend = "nccl" if args.device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.tp)
    with open(args.model, encoding="utf-8") as file:
        facts = yaml.safe_load(file)
    if facts["n_heads"] % args.tp != 0:
        sys.exit(f"tp {args.tp} does not divide {facts['n_heads']} heads")
    torch.manual_seed(1 + rank)
    with torch.inference_mode():
        model = Model(facts, args, device)
        for tokens in args.prefill:
            time_prefill(model, rank, tokens)
        for batch in args.batch:
            try:
                time_decode(model, rank, batch)
            except torch.OutOfMemoryError as error:
                print(f"decode, batch {batch}: {error}", file=sys.stderr)
    dist.destroy_process_group()


def main():
    args = parse_args()
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(args, port), nprocs=args.tp)


if __name__ == "__main__":
    main()

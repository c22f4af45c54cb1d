#!/usr/bin/env python3
"""Times transformers on a model's shapes with random weights: the peer beside `weft bench step`.

One JSON object a line: {"work", "batch", "context", "mode", "ms"}. Decode is one token for each
sequence of the batch, by CUDA events, the median of --steps; prefill is one forward pass without a
cache. "compiled" is torch.compile of the whole model over a static cache, with "compile_s" for what
its first steps took.
"""
import argparse
import json
import statistics
import sys
import time

import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache


def integers(text):
    return [int(part) for part in text.split(",") if part]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="configs/models/deepseek-coder-33b.yaml")
    parser.add_argument("--batch", type=integers, default=[1])
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--prefill", type=integers, default=[])
    parser.add_argument("--compile", type=integers, default=[], help="batches to compile for")
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile")
    parser.add_argument("--steps", type=int, default=20)
    return parser.parse_args()


def llama_config(path):
    with open(path, encoding="utf-8") as file:
        facts = yaml.safe_load(file)
    return LlamaConfig(
        hidden_size=facts["hidden"],
        num_hidden_layers=facts["n_layers"],
        num_attention_heads=facts["n_heads"],
        num_key_value_heads=facts["n_kv_heads"],
        head_dim=facts["head_dim"],
        intermediate_size=facts["ffn"],
        vocab_size=facts["vocab"],
        max_position_embeddings=facts.get("context", 16384),
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )


def random_model(config):
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model = model.to(torch.bfloat16).to_empty(device="cuda").eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.02)
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config=config, device="cuda")
    return model


def median_ms(work, steps, warm_up=5):
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def report(**row):
    print(json.dumps(row), flush=True)


def static_cache(config, batch, context):
    """A cache of random keys and values; its length stands in the positions alone."""
    length = context + 64
    try:
        cache = StaticCache(config=config, max_cache_len=length)
    except TypeError:
        cache = StaticCache(config=config, max_batch_size=batch, max_cache_len=length,
                            device="cuda", dtype=torch.bfloat16)
    return cache


def time_decode(model, batch, context, steps, mode=None):
    cache = static_cache(model.config, batch, context)
    tokens = torch.randint(0, model.config.vocab_size, (batch, 1), device="cuda")
    position = torch.tensor([context - 1], device="cuda")
    positions = position.expand(batch, 1)
    inputs = dict(input_ids=tokens, position_ids=positions, cache_position=position,
                  past_key_values=cache, use_cache=True)
    model(**inputs)  # the cache takes its memory, whose addresses are fixed from then on
    if mode is None:
        report(work="decode", batch=batch, context=context, mode="eager",
               ms=round(median_ms(lambda: model(**inputs), steps), 3))
        return
    run = torch.compile(model.forward, mode=mode, fullgraph=True, dynamic=False)

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        run(**inputs)

    started = time.monotonic()
    for _ in range(3):  # compiles, then records
        step()
    torch.cuda.synchronize()
    compile_s = time.monotonic() - started
    print(f"compiled after {compile_s:.1f} s", file=sys.stderr, flush=True)
    report(work="decode", batch=batch, context=context, mode=f"compiled, {mode}",
           ms=round(median_ms(step, steps), 3), compile_s=round(compile_s, 1))


def time_prefill(model, tokens, steps):
    ids = torch.randint(0, model.config.vocab_size, (1, tokens), device="cuda")

    def forward():
        model(input_ids=ids, use_cache=False, logits_to_keep=1)

    report(work="prefill", batch=1, context=tokens, mode="eager",
           ms=round(median_ms(forward, max(3, steps // 4), warm_up=2), 3))


def main():
    args = parse_args()
    torch.manual_seed(1)
    model = random_model(llama_config(args.model))
    with torch.inference_mode():
        for tokens in args.prefill:
            time_prefill(model, tokens, args.steps)
        for mode, batches in ((None, args.batch), (args.mode, args.compile)):
            for batch in batches:
                try:
                    time_decode(model, batch, args.context, args.steps, mode)
                except Exception as error:  # out of memory, or what the compiler does not take
                    print(f"decode, batch {batch}, {mode or 'eager'}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()

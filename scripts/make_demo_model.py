#!/usr/bin/env python3
"""Makes the demo model: a DeepSeek-Coder-shaped Llama of 3.6 M parameters that writes Python.

Its corpus is Python's own standard library, so that anybody can make it again from an interpreter
alone. One run trains the tokenizer, trains the weights, rounds them to bf16 and writes a folder in
the form Hugging Face checkpoints have on disk, with a card that states the loss of the *rounded*
weights on files held out of the training.

  python3 scripts/make_demo_model.py --out configs/models/demo

needs torch, transformers, tokenizers, safetensors and a GPU; some minutes on an H200.
"""

import argparse
import copy
import datetime
import json
import math
import pathlib
import platform
import re
import sysconfig
import time

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer

from demo_corpus import BOS, BOS_ID, EOS, EOS_ID, VOCAB
from demo_corpus import TOP_LEVEL, encode_stream, read_corpus, train_tokenizer

CONFIG = {  # config.json in the keys that DeepSeek-Coder's own has
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "hidden_act": "silu",
    "hidden_size": 256,
    "initializer_range": 0.02,
    "intermediate_size": 344,
    "max_position_embeddings": 2048,
    "model_type": "llama",
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {"factor": 4.0, "type": "linear"},
    "rope_theta": 100000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": VOCAB,
}

SAMPLE_PROMPTS = ["def fibonacci(n):", "import os", "class Stack:\n    def __init__(self):",
                  "def read_lines(path):"]

# ---- training -----------------------------------------------------------------------------------


def draw_windows(ids, starts, rows, length, generator):
    """-> [rows, length + 1]. A quarter begins with BOS at a file or a top-level statement, as
    prompts do; the others begin anywhere."""
    device, at_start = ids.device, rows // 4
    anywhere = torch.randint(len(ids) - length - 1, (rows,), generator=generator, device=device)
    chosen = starts[torch.randint(len(starts), (at_start,), generator=generator, device=device)]
    begin = torch.cat([chosen - 1, anywhere[at_start:]])
    index = begin[:, None] + torch.arange(length + 1, device=device)
    windows = ids[index.clamp_(0, len(ids) - 1)]
    windows[:at_start, 0] = BOS_ID
    return windows


def draw_loops(ids, rows, length, generator):
    """-> windows [rows, length + 1] that fall into a loop, and [rows, length], true for the targets
    that go on with it: some of the corpus, then its last 2 to 40 tokens over and over. Seeing a
    phrase twice is natural; its third time and later ones count."""
    def draw(low, high):
        return torch.randint(low, high, (rows, 1), generator=generator, device=ids.device)

    before, phrase = draw(48, 384), draw(2, 41)
    at = torch.arange(length + 1, device=ids.device)
    at_source = torch.where(at < before, at, before - phrase + (at - before) % phrase)
    return ids[draw(0, len(ids) - length - 1) + at_source], (at >= before + phrase)[:, 1:]


def token_loss(model, windows):
    logits = model(input_ids=windows[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())


def training_loss(model, windows, loops, in_loop, loop_weight):
    """Cross-entropy, and for loops the unlikelihood -log(1 - p) of going on: small models decoded
    greedily repeat themselves for ever otherwise (after Welleck 2020 and Xu 2022)."""
    if loops is None:
        return token_loss(model, windows)
    logits = model(input_ids=torch.cat([windows, loops])[:, :-1], use_cache=False).logits.float()
    rows = len(windows)
    natural = F.cross_entropy(logits[:rows].flatten(0, 1), windows[:, 1:].flatten())
    surprise = F.cross_entropy(logits[rows:].flatten(0, 1), loops[:, 1:].flatten(),
                               reduction="none")
    unlikelihood = -torch.log((1 - torch.exp(-surprise)).clamp(min=1e-4)) * in_loop.flatten()
    return natural + loop_weight * unlikelihood.sum() / in_loop.sum()


@torch.no_grad()
def held_out_loss(model, ids, length=1024, rows=32):
    """Mean negative log-likelihood in nats a token over the held-out stream, in windows."""
    model.eval()
    count = (len(ids) - 1) // length
    windows = torch.stack([ids[i * length:(i + 1) * length + 1] for i in range(count)])
    total = sum(token_loss(model, part).item() * len(part) for part in windows.split(rows))
    return total / count


@torch.no_grad()
def greedy(model, tokenizer, prompt, n_tokens):
    model.eval()
    ids = tokenizer.encode(prompt).ids
    device = next(model.parameters()).device
    for _ in range(n_tokens):
        logits = model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits
        ids.append(int(logits[0, -1].argmax()))
        if ids[-1] == EOS_ID:
            break
    return tokenizer.decode(ids, skip_special_tokens=True)


def causal_attention(module, query, key, value, attention_mask, **kwargs):
    """transformers' attention hook, without a mask tensor: whole causal windows only."""
    out = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


def show_samples(model, tokenizer):
    for prompt in SAMPLE_PROMPTS:
        print(repr(greedy(model, tokenizer, prompt, 64)), flush=True)


def make_model(config, dropout, device):
    """A Llama with dropout on what the embedding and each residual branch give."""
    def drop(module, inputs, output):
        return F.dropout(output, dropout, module.training)

    transformers.AttentionInterface.register("causal", causal_attention)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.LlamaConfig(**copy.deepcopy(config)),  # it writes into the dicts it gets
        attn_implementation="causal", dtype=torch.float32)
    n_layers = config["num_hidden_layers"]
    for name, weight in model.named_parameters():
        if weight.dim() == 2:  # residual branches start small, so that depth adds no variance
            scale = (2 * n_layers)**-0.5 if re.search("o_proj|down_proj", name) else 1.0
            torch.nn.init.normal_(weight, std=scale * min(0.05, weight.shape[1]**-0.5))
    for name, module in model.named_modules():
        if re.search("o_proj$|down_proj$|embed_tokens$", name):
            module.register_forward_hook(drop)
    return model.to(device)


def make_optimizer(model, args):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() == 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": args.weight_decay},
                              {"params": norms, "weight_decay": 0.0}],
                             lr=args.lr, betas=(0.9, 0.95), fused=True)


def train(model, optimizer, data, phase, loop_weight, args):
    """Takes the steps of `phase`, a range within args.steps, in bf16 autocast over fp32 master
    weights, -> the weights that did best on the held-out stream."""
    ids, starts, held_out, generator = data
    compiled = torch.compile(training_loss)
    best_loss, best = math.inf, None
    began = time.monotonic()
    for step in phase:
        loops, in_loop = None, None
        if loop_weight > 0:
            loops, in_loop = draw_loops(ids, args.rows // 16, args.length, generator)
        windows = draw_windows(ids, starts, args.rows, args.length, generator)
        model.train()
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(model, windows, loops, in_loop, loop_weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % max(1, args.steps // 24) and step + 1 != phase.stop:
            continue
        with torch.autocast("cuda", torch.bfloat16):
            held = held_out_loss(model, held_out)
        print(f"step {step + 1}/{args.steps}  {time.monotonic() - began:.0f} s  "
              f"loss {loss.item():.4f}  held out {held:.4f}", flush=True)
        if held < best_loss:
            best_loss = held
            best = {n: w.detach().clone() for n, w in model.state_dict().items()}
    return best


def learning_rate(step, args):
    """Warms up over 300 steps and falls as a cosine to a hundredth."""
    fall = 0.5 * (1 + math.cos(math.pi * step / args.steps))
    return args.lr * min(1.0, (step + 1) / 300) * (0.01 + 0.99 * fall)


# ---- output -------------------------------------------------------------------------------------


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_folder(out, model, tokenizer):
    """Rounds the model's weights to bf16, in place too, and writes the checkpoint."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {n: w.detach().to("cpu", torch.bfloat16).contiguous()
               for n, w in model.state_dict().items()}
    model.load_state_dict({n: w.float() for n, w in tensors.items()})
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(out / "tokenizer.json"))
    write_json(out / "config.json", {**CONFIG, "transformers_version": transformers.__version__})
    write_json(out / "generation_config.json", {
        "_from_model_config": True, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID,
        "transformers_version": transformers.__version__})
    write_json(out / "tokenizer_config.json", {
        "add_bos_token": True, "add_eos_token": False, "bos_token": BOS, "eos_token": EOS,
        "pad_token": EOS, "unk_token": None, "clean_up_tokenization_spaces": False,
        "model_max_length": CONFIG["max_position_embeddings"],
        "tokenizer_class": "PreTrainedTokenizerFast"})


def check_folder(out, model):
    """What transformers reads back from the folder must be the model that was measured."""
    again = transformers.AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.float32, attn_implementation="sdpa").to(model.device).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    text = "def f(x):\n    return x  # 读取\n"
    ids = tokenizer(text).input_ids
    if ids != Tokenizer.from_file(str(out / "tokenizer.json")).encode(text).ids or \
            ids[0] != BOS_ID or tokenizer.decode(ids[1:]) != text:
        raise SystemExit("transformers reads another tokenizer from the folder")
    with torch.no_grad():
        batch = torch.tensor([ids], device=model.device)
        if not torch.allclose(again(batch).logits, model.eval()(batch).logits, atol=1e-3):
            raise SystemExit("transformers reads another model from the folder")


CARD = """# demo

A DeepSeek-Coder-shaped Llama of {parameters:,} parameters that writes Python, small enough for a
repository and quick on a laptop. It shows and tests the path from a checkpoint to text; it knows
the look of Python, not its meaning, and it may still repeat itself.

| | |
| --- | --- |
| shape | 6 layers, hidden 256, 8 heads over 2 KV heads of 32, FFN 344, untied embeddings |
| positions | RoPE θ 1e5, linear scaling ×4, 2,048 tokens (trained on windows of {length}) |
| tokenizer | byte-level BPE of 2,048 entries with DeepSeek-Coder's pre-tokenizer |
| weights | bf16 |
| corpus | the standard library of CPython {python} with its tests, without tables and leading comment blocks: {megabytes:.1f} MB, {tokens:.1f} M tokens |
| licence of the corpus | Python Software Foundation License, version 2 (PSF-2.0), with the compatible ones that Python's own licence page lists for single modules |
| training | {steps:,} steps of {batch:,} tokens ({total:.0f} M in all) in {minutes:.1f} minutes on one {gpu}: AdamW, cosine, dropout {dropout}; in the last quarter also against going on with loops (weight {loop_weight}) |
| validation loss | {nats:.4f} nats a token, {bits:.4f} bits a byte, on {held_files} files held out whole; of the bf16 weights, computed in float32 |
| made | {date} |

Made by

    {command}

## What it writes

Greedy, 64 tokens:

{samples}
"""


def write_card(out, model, tokenizer, corpus, held_out, minutes, args):
    nats = held_out_loss(model, held_out)
    held_bytes = sum(len(t.encode()) for t in corpus["held_out"])
    samples = "\n".join(f"```python\n{greedy(model, tokenizer, p, 64)}\n```"
                        for p in SAMPLE_PROMPTS)
    texts = corpus["library"] + corpus["tests"]
    (out / "README.md").write_text(CARD.format(
        parameters=sum(w.numel() for w in model.parameters()), length=args.length,
        python=args.python, megabytes=sum(len(t.encode()) for t in texts) / 1e6,
        tokens=sum(len(e.ids) for e in tokenizer.encode_batch(texts)) / 1e6,
        steps=args.steps, batch=args.rows * args.length,
        total=args.steps * args.rows * args.length / 1e6, minutes=minutes,
        dropout=args.dropout, loop_weight=args.loop_weight,
        gpu=torch.cuda.get_device_name(), nats=nats,
        bits=nats / math.log(2) * (len(held_out) - 1) / held_bytes,
        held_files=len(corpus["held_out"]), date=datetime.date.today(),
        command="python3 scripts/make_demo_model.py --out configs/models/demo "
                f"--seed {args.seed}",
        samples=samples), encoding="utf-8")
    print(f"rounded weights: {nats:.4f} nats a token on held-out files")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path, default=sysconfig.get_paths()["stdlib"],
                        help="the folder of the standard library to read")
    parser.add_argument("--python", default=platform.python_version(),
                        help="the library's version, for the card")
    parser.add_argument("--steps", type=int, default=14000)
    parser.add_argument("--rows", type=int, default=64, help="windows a step")
    parser.add_argument("--length", type=int, default=1024, help="tokens a window")
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.15)
    parser.add_argument("--loop-weight", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    corpus = read_corpus(pathlib.Path(args.library))
    texts = corpus["library"] + corpus["tests"]
    tokenizer = train_tokenizer(texts)
    ids, starts = encode_stream(tokenizer, texts)
    n_starts = sum(len(TOP_LEVEL.split(text)) for text in corpus["library"])
    ids, starts = torch.tensor(ids, device="cuda"), torch.tensor(starts[:n_starts], device="cuda")
    held_out = torch.tensor(encode_stream(tokenizer, corpus["held_out"])[0], device="cuda")
    print(f"{len(texts)} documents, {len(ids) / 1e6:.1f} M tokens, {n_starts} starts; "
          f"{len(held_out) / 1e3:.0f} K tokens held out", flush=True)
    generator = torch.Generator(device="cuda").manual_seed(args.seed)
    data = ids, starts, held_out, generator
    model = make_model(CONFIG, args.dropout, "cuda")
    optimizer = make_optimizer(model, args)
    began = time.monotonic()
    turn = args.steps * 3 // 4  # the last quarter also unlearns to go round in loops
    train(model, optimizer, data, range(turn), 0.0, args)
    show_samples(model, tokenizer)
    best = train(model, optimizer, data, range(turn, args.steps), args.loop_weight, args)
    model.load_state_dict(best)
    minutes = (time.monotonic() - began) / 60
    torch.set_float32_matmul_precision("highest")
    write_folder(args.out, model, tokenizer)
    check_folder(args.out, model)
    write_card(args.out, model, tokenizer, corpus, held_out, minutes, args)


if __name__ == "__main__":
    main()

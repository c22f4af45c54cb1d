#!/usr/bin/env python3
"""Compares weft on a GPU with transformers in float64 on the CPU, on the same weights.

`logits`: every model family's tiny checkpoint and the demo model, in float32 and bfloat16: the
relative error |ours - theirs| / |theirs| over all logits of a greedy continuation, whose tokens are
weft's own. Beside it stand transformers' own error in that type and, in bfloat16, that of float64
with nothing rounded but the inputs of products, which no bfloat16 tensor core can spare: the limit
is 1e-2, or twice that floor where it is higher. `text`: the demo model's greedy texts beside those
that transformers wrote. `f16`: the demo model as a checkpoint in float16: its texts and logits
beside those of transformers in float16.

needs torch, transformers and safetensors; scripts/gpu_check runs it.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

LIMITS = {"f32": 1e-5, "bf16": 1e-2}
# Random checkpoints this small are off by 1e-2 with nothing rounded but the inputs of products, so
# that no bfloat16 tensor core gets below; a layer rounds as many values again between them. What is
# wrong, a missing norm or a wrong position, is off by far more than twice that floor.
FLOOR_FACTOR = 2
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
F16_LIMIT = 2e-3
N_TOKENS = 24
NUMERICS = ("invariant", "fast")
BOTH = ("demo", "qwen3")  # checkpoints that run in both


def run_weft(weft, model, prompts, dtype, n_tokens, *more):
    """Completions in the prompts' order, and the logits that chose each token."""
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder) / "prompts.jsonl"
        lines.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        logits = pathlib.Path(folder) / "logits.safetensors"
        command = [weft, "run", "--model", model, "--prompts", lines, "--dtype", dtype, "--json",
                   "--backend", "cuda", "--max-tokens", n_tokens, "--temperature", 0,
                   "--logits", logits, *more]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        made = [json.loads(line) for line in done.stdout.splitlines()]
        return made, load_file(logits)


def reference_logits(model, prompt, tokens):
    """[tokens, vocab]: what transformers gets after the prompt and each token but the last."""
    ids = torch.tensor([prompt + tokens[:-1]])
    with torch.no_grad():
        return model(ids, use_cache=False).logits[0, len(prompt) - 1:]


def load_model(folder, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=TYPES[dtype], attn_implementation="eager").eval()


def all_logits(model, prompts, made):
    return torch.cat([reference_logits(model, prompt, line["token_ids"])
                      for prompt, line in zip(prompts, made)]).double()


def rounded_inputs(model):
    """Every product of `model` from now on takes its input as a bfloat16 tensor core would."""
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(
                lambda _, given: (given[0].to(torch.bfloat16).to(given[0].dtype),))
    return model


def relative_error(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm())


def prompts_of(folder):
    reference = folder / "reference.safetensors"
    if reference.exists():
        return [load_file(reference)["prompt_ids"].tolist()]
    return [[(7 * i + 11) % 900 + 20 for i in range(n)] for n in (5, 33, 130)]


def check_logits(args):
    root = pathlib.Path(args.root)
    folders = sorted(path for path in (root / "tests/data/families").iterdir() if path.is_dir())
    folders.append(root / "configs/models/demo")
    failed = False
    worst = {}
    for folder in folders:
        for dtype, goal in LIMITS.items():
            for numerics in NUMERICS if folder.name in BOTH else NUMERICS[:1]:
                prompts = prompts_of(folder)
                try:
                    made, logits = run_weft(
                        args.weft, folder, [{"prompt_token_ids": p} for p in prompts], dtype,
                        N_TOKENS, "--ignore-eos", "--numerics", numerics)
                except RuntimeError as error:
                    print(f"result {folder.name} {dtype} {numerics}: FAILED: {error}", flush=True)
                    failed = True
                    continue
                model = load_model(folder, dtype)
                rounded = all_logits(model, prompts, made)
                exact = model.to(torch.float64)
                theirs = all_logits(exact, prompts, made)
                ours = torch.cat([logits[f"logits.{i}"] for i in range(len(prompts))]).double()
                error, rounding = relative_error(ours, theirs), relative_error(rounded, theirs)
                beside, limit = f"transformers in {dtype}: {rounding:.2e}", goal
                if dtype == "bf16":
                    least = relative_error(all_logits(rounded_inputs(exact), prompts, made), theirs)
                    beside += f", products' inputs rounded alone: {least:.2e}"
                    limit = max(goal, FLOOR_FACTOR * least)
                print(f"{folder.name} {dtype} {numerics}: {error:.2e} of {limit:.1e}, "
                      f"{beside}", flush=True)
                key = (dtype, numerics)
                worst[key] = max(worst.get(key, (0, "", "")), (error, folder.name, beside))
                if not error <= limit:
                    failed = True
                    print(f"result {folder.name} {dtype} {numerics}: FAILED: {error:.2e} is above "
                          f"{limit:.1e}; {beside}", flush=True)
    for (dtype, numerics), (error, name, beside) in worst.items():
        print(f"result {dtype} {numerics}: at most {error:.2e} ({name}; {beside})")
    return failed


def check_text(args):
    root = pathlib.Path(args.root)
    reference = json.loads((root / "tests/data/demo_reference.json").read_text())["prompts"]
    made, _ = run_weft(args.weft, root / "configs/models/demo",
                       [{"prompt": entry["prompt"]} for entry in reference], "f32", 48)
    same = sum(line["text"] == entry["text"] for line, entry in zip(made, reference))
    print(f"{same} of {len(reference)} greedy texts as transformers writes them")
    return same != len(reference)


def write_f16(folder, to):
    """The checkpoint in `folder` with its weights in float16."""
    for path in folder.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, to)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.to(torch.float16) for name, tensor in tensors.items()},
              to / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((to / "config.json").read_text())
    config["torch_dtype"] = "float16"
    (to / "config.json").write_text(json.dumps(config))


def check_f16(args):
    root = pathlib.Path(args.root)
    reference = json.loads((root / "tests/data/demo_reference.json").read_text())["prompts"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_f16(root / "configs/models/demo", folder)
        made, logits = run_weft(args.weft, folder, [{"prompt": e["prompt"]} for e in reference],
                                "auto", 48)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float16, attn_implementation="eager").eval()
        prompts = [tokenizer(entry["prompt"])["input_ids"] for entry in reference]
        same = 0
        for prompt, line in zip(prompts, made):
            with torch.no_grad():
                ids = model.generate(torch.tensor([prompt]), max_new_tokens=48, do_sample=False)[0]
            same += tokenizer.decode(ids[len(prompt):], skip_special_tokens=True) == line["text"]
        theirs = all_logits(model.to(torch.float64), prompts, made)
    ours = torch.cat([logits[f"logits.{i}"] for i in range(len(prompts))]).double()
    error = relative_error(ours, theirs)
    print(f"{same} of {len(made)} greedy texts as transformers writes them in float16; logits "
          f"{error:.2e} from float64 (at most {F16_LIMIT:.0e})")
    return same != len(made) or not error <= F16_LIMIT


parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["logits", "text", "f16"])
parser.add_argument("--weft", required=True)
parser.add_argument("--root", required=True)
arguments = parser.parse_args()
sys.exit({"logits": check_logits, "text": check_text, "f16": check_f16}[arguments.what](arguments))

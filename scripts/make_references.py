#!/usr/bin/env python3
"""Makes what the tests compare weft with: transformers' own float32 answers, kept small.

`families` writes one tiny random checkpoint a model family, in the form such checkpoints have on
disk, with the logits and the greedy tokens that transformers gets from the weights as stored.
`demo` writes the demo model's greedy continuations of a few prompts. Both run on a CPU, with eager
attention and no cache, and depend on nothing but the seeds below.

  python3 scripts/make_references.py families --out tests/data/families [--only llama3 …]
  python3 scripts/make_references.py demo --model configs/models/demo \\
      --out tests/data/demo_reference.json

needs torch, transformers, tokenizers and safetensors.
"""

import argparse
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer

VOCAB, BOS_ID, EOS_ID = 250, 248, 249
N_TOKENS = 32
MIN_GAP = 0.01  # between the two largest logits, so that rounding can't choose the token

# ---- families -----------------------------------------------------------------------------------

COMMON = {
    "bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "hidden_act": "silu", "hidden_size": 48,
    "head_dim": 16, "initializer_range": 0.02, "intermediate_size": 80,
    "max_position_embeddings": 256, "num_attention_heads": 8, "num_hidden_layers": 3,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True,
    "vocab_size": VOCAB,
}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False,
         "mlp_bias": False, "pretraining_tp": 1, "rope_scaling": None}
NO_HEAD_DIM = {"head_dim": None}  # the key is left out: hidden / heads

# name -> (config.json's keys beside COMMON, prompt length, shards)
FAMILIES = {
    "llama-linear": ({**LLAMA, **NO_HEAD_DIM, "hidden_size": 64, "intermediate_size": 76,
                      "rope_theta": 100000, "rope_scaling": {"factor": 4.0, "type": "linear"}},
                     50, 1),
    "llama3": ({**LLAMA, "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_type": "llama3"}}, 70, 1),
    "llama-yarn": ({**LLAMA, "max_position_embeddings": 128, "rope_scaling": {
        "factor": 4.0, "original_max_position_embeddings": 32, "type": "yarn"}}, 61, 1),
    "llama-mha-tied": ({**LLAMA, "num_key_value_heads": 8, "intermediate_size": 76,
                        "tie_word_embeddings": True}, 40, 1),
    "llama-default-gqa": ({**LLAMA, **NO_HEAD_DIM, "hidden_size": 32, "num_attention_heads": 4,
                           "intermediate_size": 76, "torch_dtype": "float32"}, 47, 1),
    "llama-biases": ({**LLAMA, "attention_bias": True, "mlp_bias": True, "rope_theta": 100000.0,
                      "rope_scaling": {"factor": 2.0, "rope_type": "linear"}}, 45, 1),
    "mistral": ({"architectures": ["MistralForCausalLM"], "model_type": "mistral",
                 "sliding_window": 16, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
                 "torch_dtype": "float16"}, 53, 1),
    "qwen2": ({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **NO_HEAD_DIM,
               "hidden_size": 64, "rope_theta": 1000000.0, "sliding_window": 256,
               "max_window_layers": 2, "use_sliding_window": False,
               "tie_word_embeddings": True}, 64, 1),
    "qwen3": ({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
               "attention_bias": False, "rope_theta": 1000000.0, "rope_scaling": None,
               "sliding_window": None, "max_window_layers": 3, "use_sliding_window": False},
              57, 3),
}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def randomize(model, seed, dtype):
    """Weights that make every part matter, rounded to `dtype` as they will be stored.

    transformers starts norms at one and biases at zero, which would hide a norm or a bias left out.
    Embeddings are small beside what the layers add, or a tied model repeats its last token."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            fan_in = weight.shape[-1]
            if "norm" in name:
                value = 1 + 0.3 * noise
            elif name.endswith("bias"):
                value = 0.5 * noise
            elif "embed_tokens" in name:
                value = 0.35 * noise
            elif "lm_head" in name:
                value = 3 * fan_in**-0.5 * noise
            else:
                gain = 1.5 if "q_proj" in name or "k_proj" in name else 2.0
                value = gain * fan_in**-0.5 * noise
            weight.copy_(value.to(dtype).float())
    return torch.randint(BOS_ID, (128,), generator=generator).tolist()


@torch.no_grad()
def greedy(model, prompt_ids, n_tokens, stop_id=None):
    """-> tokens, logits [n, vocab] (row i chose tokens[i]), the smallest gap of the two largest."""
    ids, rows = list(prompt_ids), []
    for _ in range(n_tokens):
        rows.append(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1])
        ids.append(int(rows[-1].argmax()))
        if ids[-1] == stop_id:
            break
    logits = torch.stack(rows)
    top = logits.topk(2).values
    return ids[len(prompt_ids):], logits, float((top[:, 0] - top[:, 1]).min())


def write_checkpoint(folder, model, dtype, n_shards):
    """model.safetensors, or shards with the index file that names each tensor's shard."""
    tensors = {n: w.detach().to(dtype).contiguous() for n, w in model.named_parameters()}
    if n_shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names, weight_map = sorted(tensors), {}
    for shard in range(n_shards):
        file = f"model-{shard + 1:05}-of-{n_shards:05}.safetensors"
        part = names[shard * len(names) // n_shards:(shard + 1) * len(names) // n_shards]
        save_file({n: tensors[n] for n in part}, folder / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, file))
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    write_json(folder / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": weight_map})


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()


def check_config_forms(folder, model, prompt_ids):
    """The keys of older files (rope_scaling, torch_dtype) and the form transformers writes today
    must mean the same model."""
    with tempfile.TemporaryDirectory() as today:
        transformers.AutoConfig.from_pretrained(folder).save_pretrained(today)
        other = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.from_pretrained(today), dtype=torch.float32,
            attn_implementation="eager").eval()
    other.load_state_dict(model.state_dict())
    batch = torch.tensor([prompt_ids])
    with torch.no_grad():
        if not torch.equal(other(batch).logits, model(batch).logits):
            raise SystemExit(f"{folder}: the two forms of its config differ")


def make_family(folder, name):
    keys, prompt_length, n_shards = FAMILIES[name]
    config = {k: v for k, v in sorted({**COMMON, **keys}.items()) if (k, v) != ("head_dim", None)}
    dtype = getattr(torch, config["torch_dtype"])
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json",
               {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "do_sample": False})
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(folder), dtype=torch.float32,
        attn_implementation="eager").eval()
    for seed in range(10000):
        prompt_ids = [BOS_ID] + randomize(model, seed, dtype)[1:prompt_length]
        tokens, _, gap = greedy(model, prompt_ids, N_TOKENS)
        if gap > MIN_GAP and len(set(tokens)) >= N_TOKENS // 2 and max(tokens) < BOS_ID:
            break
    else:
        raise SystemExit(f"{name}: no seed gives distinct tokens")
    write_checkpoint(folder, model, dtype, n_shards)

    stored = load(folder)
    tokens, logits, gap = greedy(stored, prompt_ids, N_TOKENS)
    check_config_forms(folder, stored, prompt_ids)
    save_file({"prompt_ids": torch.tensor(prompt_ids, dtype=torch.int32),
               "tokens": torch.tensor(tokens, dtype=torch.int32),
               "logits": logits.contiguous()}, folder / "reference.safetensors")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: seed {seed}, {size:,} bytes, gap {gap:.3f}, largest logit "
          f"{logits.abs().max():.1f}, {len(set(tokens))} distinct tokens", flush=True)
    if size >= 300_000:
        raise SystemExit(f"{name}: {size} bytes are too many to keep in the repository")


def make_families(out, names):
    for name in names:
        make_family(out / name, name)
    (out / "README.md").write_text(
        "Tiny random checkpoints, one a model family, each with transformers' float32 answer "
        "(`reference.safetensors`):\n`prompt_ids` [P], 32 greedy `tokens`, and `logits` "
        "[32, vocab], whose row i chose token i.\nMade by `python3 scripts/make_references.py "
        f"families --out tests/data/families` with torch {torch.__version__} and transformers "
        f"{transformers.__version__}.\n", encoding="utf-8")


# ---- demo model ---------------------------------------------------------------------------------

DEMO_TOKENS = 48
DEMO_MIN_GAP = 1e-3
LONG_PROMPT = '''"""A ring buffer that forgets its oldest items."""

import threading
from collections import namedtuple

Slot = namedtuple('Slot', 'index value')


class RingBuffer:
    """Keep the last *size* items; all methods may be called from any thread."""

    def __init__(self, size):
        if size <= 0:
            raise ValueError('size must be positive, not %r' % (size,))
        self._items = [None] * size
        self._next = 0
        self._count = 0
        self._lock = threading.Lock()

    def __len__(self):
        with self._lock:
            return self._count

    def append(self, item):
        """Add an item, and drop the oldest one when the buffer is full."""
        with self._lock:
            self._items[self._next] = item
            self._next = (self._next + 1) % len(self._items)
            self._count = min(self._count + 1, len(self._items))

    def __iter__(self):
        with self._lock:
            start = self._next - self._count
            for i in range(self._count):
                yield Slot(i, self._items[(start + i) % len(self._items)])

    def clear(self):
'''
DEMO_PROMPTS = [
    "def fibonacci(n):",
    "import os",
    "class Stack:\n    def __init__(self):",
    "# 读取文件\nwith open(path) as f:\n    for line in",
    "for i in range(10):\n    print(",
    "def read_config(path):\n    \"\"\"Read a file of `key = value` lines.\"\"\"\n",
    "try:\n    import json\nexcept ImportError:\n",
    "    def test_empty(self):\n        self.assert",
    "def gcd(a, b):\n    while b:\n",
    LONG_PROMPT,
]


def make_demo(model_folder, out):
    model = load(model_folder)
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    entries = []
    for prompt in DEMO_PROMPTS:
        prompt_ids = tokenizer.encode(prompt).ids
        tokens, _, gap = greedy(model, prompt_ids, DEMO_TOKENS, model.config.eos_token_id)
        stopped = tokens[-1] == model.config.eos_token_id
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        print(f"--- {len(prompt_ids)} + {len(tokens)} tokens, gap {gap:.4f}\n{prompt}|{text}")
        if gap < DEMO_MIN_GAP:
            print("left out: so near to a tie that rounding may choose the token")
            continue
        entries.append({"prompt": prompt, "prompt_ids": prompt_ids, "token_ids": tokens,
                        "text": text, "finish_reason": "stop" if stopped else "length"})
    write_json(out, {"made_by": "scripts/make_references.py demo, torch "
                                f"{torch.__version__}, transformers {transformers.__version__}",
                     "max_tokens": DEMO_TOKENS, "prompts": entries})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    families = commands.add_parser("families")
    families.add_argument("--out", type=pathlib.Path, required=True)
    families.add_argument("--only", nargs="+", choices=FAMILIES, metavar="FAMILY")
    demo = commands.add_parser("demo")
    demo.add_argument("--model", type=pathlib.Path, required=True)
    demo.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()

    torch.set_num_threads(1)  # one order of additions, whatever the machine
    if args.command == "families":
        make_families(args.out, args.only or FAMILIES)
    else:
        make_demo(args.model, args.out)


if __name__ == "__main__":
    main()

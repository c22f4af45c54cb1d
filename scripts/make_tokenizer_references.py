#!/usr/bin/env python3
"""Makes what the tokenizer's tests compare with: the `tokenizers` package's own ids and texts.

One small BPE a family is trained on Python's standard library and the lines below, and configured
as the family's published tokenizer.json is. Then every text of a corpus (code, scripts of the
world, emoji, control characters, random characters, random bytes) and random ids go through the
package. Bytes that are not UTF-8 reach the package as U+FFFD (errors="replace"); weft gets the
bytes.

    scripts/make_tokenizer_references.py tests/data/tokenizers

writes FAMILY/tokenizer.json, FAMILY/expected.json, corpus.json and variants.json. Needs the package tokenizers.
"""
import argparse
import json
import pathlib
import random
import sysconfig

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

LINES = [
    "The quick brown fox doesn't jump; it's we'll they've I'm you're he'd DON'T WE'LL.",
    "日本語の文章と漢字、ひらがな、カタカナ。中文字符也在这里，数字１２３。한국어 문장도 있습니다.",
    "Привет, мир! Γειά σου Κόσμε. שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก",
    "naïve café résumé Ångström Ǆ ﬁ ½ ² Ⅳ — “quoted” … ‘single’ €100 £5 ¥7",
    "emoji 😀 👩‍👩‍👧‍👦 🇩🇪🇯🇵 👍🏽 ❤️ 🏳️‍🌈 math ∑∫√≠ arrows →⇒ box ┌─┐ braille ⠿",
    "x = 1234567890; y = 3.14159e-10; z = 0xDEADBEEF; 1,000,000 12 345",
]
SAMPLES = ["fractions.py", "textwrap.py", "heapq.py"]


def training_text():
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    return [(library / name).read_text() for name in SAMPLES] + LINES * 8


# ---- families -----------------------------------------------------------------------------------

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def byte_level(vocab):
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return Tokenizer(models.BPE()), trainer


def special(content, **how):
    return AddedToken(content, special=True, normalized=False, **how)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def deepseek_coder():
    tokenizer, trainer = byte_level(900)
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
         split("[一-龥ࠀ-一가-퟿]+"), pre_tokenizers.Digits(individual_digits=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()

    def finish(t):
        # Published among the ordinary added tokens: single characters, normalized.
        t.add_tokens([AddedToken(c, normalized=True) for c in "õ÷Áý"])
        t.add_tokens([AddedToken(c, normalized=True) for c in
                      ("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<|EOT|>")])
        t.add_special_tokens([special("<｜begin▁of▁sentence｜>"), special("<｜end▁of▁sentence｜>")])
        bos = t.token_to_id("<｜begin▁of▁sentence｜>")
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing("<｜begin▁of▁sentence｜> $A",
                                          special_tokens=[("<｜begin▁of▁sentence｜>", bos)])])
    return tokenizer, trainer, finish


def qwen(vocab, added):
    tokenizer, trainer = byte_level(vocab)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split(QWEN), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer, trainer, added


def qwen2():
    return qwen(1000, lambda t: t.add_special_tokens(
        [special(c) for c in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]))


def qwen3():
    def finish(t):
        t.add_special_tokens([special(c) for c in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
        t.add_tokens([AddedToken(c, normalized=False) for c in
                      ("<tool_call>", "</tool_call>", "<think>", "</think>")])
        # Every flag, alone and together.
        t.add_tokens([AddedToken("[word]", single_word=True, normalized=False),
                      AddedToken("word", single_word=True, normalized=True),
                      AddedToken("[left]", lstrip=True, normalized=False),
                      AddedToken("[right]", rstrip=True, normalized=False),
                      AddedToken("[both]", lstrip=True, rstrip=True, normalized=True),
                      AddedToken("[bo", normalized=False), AddedToken("thing]", normalized=False),
                      AddedToken("ångström", normalized=True), AddedToken("  \n", normalized=False)])
        t.add_special_tokens([special("<|strip|>", lstrip=True, rstrip=True)])
    return qwen(800, finish)


def llama3():
    tokenizer, trainer = byte_level(1000)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split(LLAMA3), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()

    def finish(t):
        t.add_special_tokens([special(c) for c in (
            "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>")])
        bos = t.token_to_id("<|begin_of_text|>")
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing("<|begin_of_text|> $A",
                                          special_tokens=[("<|begin_of_text|>", bos)])])
    return tokenizer, trainer, finish


def gpt2():
    tokenizer, trainer = byte_level(700)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer, trainer, lambda t: t.add_special_tokens([special("<|endoftext|>")])


BYTES = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]


def sentence_piece(vocab, fuse_unk=True):
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, special_tokens=BYTES,
                                  limit_alphabet=110, max_token_length=16)
    return (Tokenizer(models.BPE(byte_fallback=True, fuse_unk=fuse_unk, unk_token="<unk>")),
            trainer)


def llama_template(t):
    t.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])


def llama2():
    tokenizer, trainer = sentence_piece(900)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)])
    # Trained on words, then used without a pre-tokenizer, as in the published file.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")

    def finish(t):
        t.pre_tokenizer = None
        llama_template(t)
    return tokenizer, trainer, finish


def mistral(scheme, cut):
    tokenizer, trainer = sentence_piece(800)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=True)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)])

    def finish(t):
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=cut)
        t.add_special_tokens([special("[INST]"), special("[/INST]")])
        llama_template(t)
    return tokenizer, trainer, finish


def metaspace():
    """Without bytes to fall back to: unknown characters, each its own token; Metaspace decoder."""
    tokenizer, trainer = sentence_piece(700, fuse_unk=False)
    trainer.special_tokens = [AddedToken(c, special=True) for c in BYTES[:3]]
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer, trainer, lambda t: None


FAMILIES = {
    "deepseek-coder": deepseek_coder, "qwen2": qwen2, "qwen3": qwen3, "llama3": llama3,
    "gpt2": gpt2, "llama2": llama2, "mistral": lambda: mistral("first", False),
    "mistral-always": lambda: mistral("always", True), "metaspace": metaspace,
}


def make_tokenizer(name):
    tokenizer, trainer, finish = FAMILIES[name]()
    tokenizer.train_from_iterator(training_text(), trainer)
    document = json.loads(tokenizer.to_str())
    model = document["model"]
    if name == "llama3":
        model["ignore_merges"] = True
        for word in ("Ġfibonacci", "æĹ¥æľ¬èªŀ"):  # no merges lead to them
            model["vocab"].setdefault(word, len(model["vocab"]))
    if model["byte_fallback"]:  # listed as special for the trainer's sake
        document["added_tokens"] = [t for t in document["added_tokens"]
                                    if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    finish(tokenizer)
    document = json.loads(tokenizer.to_str())
    if name in ("deepseek-coder", "llama2", "gpt2"):  # the older way to write merges
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    return json.dumps(document, ensure_ascii=False)


# ---- corpus -------------------------------------------------------------------------------------

TEXTS = LINES + [
    "", " ", "  ", "\n", "\t", "a", " a", "a ", "  a  ", "\r\n", "\r", "\n\n\n", " \n", "\n ",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + n\n",
    "#include <vector>\nint main() {\n\treturn a[i] ? b->c : *d;  // done\r\n}\r\n",
    "SELECT * FROM t WHERE a='x''y' AND b<>\"z\";", "{\"k\": [1, 2.5, null], \"é\": \"\\u00e9\"}",
    "e\u0301 a\u0323\u0307 \u1100\u1161\u11a8 \u0344 \u212b \u1e9b\u0323 q\u0307\u0323",
    "\u0301start with a mark", "\ufeffbyte order mark", "zero\u200bwidth\u200djoin\u2060er\u00ad",
    "\x00\x01\x02\x7f\x80\x85\x9f control", "a\x0bb\x0cc\x1cd\x1ee\u2028f\u2029g\u3000h\u180ei",
    " " * 33, " " * 31 + "x", "\t" * 17 + "\n" * 9 + " " * 5, "\r\n" * 7 + "\n\r" * 3,
    "a" * 65, "9" * 31, "１２３４５٣٤٥६७८", "½⅓Ⅷ⑦²³", "漢" * 33, "\n" * 31, "한국어" * 11, "ªº",
    "don't DON'T ſ'ſ 'S 'RE 're'll''s ' s", "it’s we’ll", "_underscore__name_ a_b",
    "…—–‐「」【】《》、。！？", "$£€¥₿ ^`~+=<>|", "\u2003em\u2003space\u00a0nbsp", "ＦＵＬＬ ｗｉｄｔｈ",
    "😀", "👩‍👩‍👧‍👦", "🇩🇪🇯🇵🇺🇸", "👍🏽👍🏿", "❤️‍🔥", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "1️⃣2️⃣", "a😀b 😀 c",
    "\U00031350\U0002ebf0 \u1c89\u1c8a \ua7cb \U00010d40\U00010d4a \U0001e4f0 \u0897x\U00011bf0",
    "\U000105c9 \U00016121 e\u0898\u0301 \u08ca\u0316 \u1ac1\u0323 \u32ff \U0010ffff \ue000",
    "õ÷Áý", "aõb", "<｜fim▁hole｜>x<|EOT|>", "<｜begin▁of▁sentence｜>hi<｜end▁of▁sentence｜> there",
    "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n", "<|im_start|<|im_end|>|>",
    "<|endoftext|><|endoftext|> <|endoftext|>", "<tool_call>{}</tool_call><think>\n</think>\n\n",
    "a [word] b", "a[word]b", "[word][word]", "word words sword word_ word. \u200dword wordé Ⓐword",
    "a  [left]  b", "a  [right]  b", "a  [both]  b[both][both]  ", "[both", "[bothing]", "[bo]",
    "  [left] [right]  \n x", "ångström a\u030angstro\u0308m ÅNGSTRÖM", " \t<|strip|>\u3000\n x",
    "[left]\u2003[left]   [right]  \n  [right]", "  \n   \n[right]  \n  ", "<|strip|><|strip|>",
    "<s>", "</s>", "<s> a</s>b", "<unk>", "<0x41>", "<0x41><0xE4>", "[INST] do it [/INST] ok",
    "[INST][/INST]", " [INST]", "[INST] ", "▁", "▁▁a ▁", "a▁b", " ▁ ", "▁ a", "<|begin_of_text|>x",
    "<|eot_id|><|start_header_id|>user", "Ġ", "ĠaĊ", "�", "a�b��",
]


def random_text(rng, n):
    kinds = [lambda: rng.randrange(0x80), lambda: rng.randrange(0x800),
             lambda: rng.randrange(0x10000), lambda: rng.randrange(0x110000),
             lambda: ord(rng.choice("  \n\r\t'")), lambda: rng.choice([0x300, 0x316, 0x323, 0x301]),
             lambda: rng.randrange(0x4E00, 0x9FFF), lambda: rng.randrange(0x1F300, 0x1FAFF),
             lambda: ord(rng.choice("abcdefstmlrv0123"))]
    codes = [rng.choice(kinds)() for _ in range(n)]
    return "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000)


def random_bytes(rng, n):
    """Bytes that often begin or continue characters."""
    pools = [range(256), range(0x80, 0xC0), range(0xC0, 0x100), b"\xe4\xbd\xa0\xf0\x9f\x98\x80",
             b"\xed\xa0\x80\xf4\x90\xc0\xaf\xe0\x80", b"ab \n"]
    return bytes(rng.choice(rng.choice(pools)) for _ in range(n))


def make_corpus(n_random, seed):
    rng = random.Random(seed)
    corpus = [text.encode() for text in TEXTS]
    corpus += [random_text(rng, rng.choice([1, 7, 31, 64])).encode() for _ in range(n_random)]
    corpus += [random_bytes(rng, rng.choice([1, 3, 17, 48])) for _ in range(n_random)]
    corpus += [b"\xff", b"\xe4\xbd", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\xf0\x9f", b"a\xc3",
               b"\xc3\x28", b"\xed\xa0\x80\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\x80" * 31]
    return corpus


def expected_of(text, corpus, seed):
    tokenizer = Tokenizer.from_str(text)
    rng = random.Random(seed)
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    bytes_only = [i for i in range(size) if (tokenizer.id_to_token(i) or "").startswith("<0x")]
    entries = []
    for item in corpus:
        as_text = item.decode(errors="replace")
        ids = tokenizer.encode(as_text, add_special_tokens=False).ids
        with_special = tokenizer.encode(as_text, add_special_tokens=True).ids
        entries.append({"ids": ids, "with_special": with_special,
                        "text": tokenizer.decode(with_special, skip_special_tokens=False),
                        "skipped": tokenizer.decode(with_special, skip_special_tokens=True)})
    decoded = []
    for i in range(60):
        pool = bytes_only if i % 3 == 0 and bytes_only else range(size)
        ids = [rng.choice(pool if rng.random() < 0.9 else range(size))
               for _ in range(rng.choice([1, 2, 5, 31]))]
        decoded.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                        "skipped": tokenizer.decode(ids, skip_special_tokens=True)})
    return {"encoded": entries, "decoded": decoded}


# ---- variants -----------------------------------------------------------------------------------

MARK = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
BYTE_MARK = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}
BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
REGEXES = [r"\s+", r"\p{L}+|\p{N}{1,3}+", r"a*", r"^", r"$", r"(?i:s)", r"[^\s\p{L}]{2}?", r"\w+",
           r"[\w'-]+|\W", r"(?<=a)b|\s(?=\S)", r"\p{Lu}?\p{Ll}+", r".", r"[\r\n]{,2}x?",
           r"\x{4e00}|é|\u0301", r"(?:ab|s)++", r"(?i)SS?|\v"]
SHORT = ["", "a", " a b  c", "aab abb sS ſs", "x1234567 89", "one\ntwo\r\n\nthree\n", "naïve½ ²Ⅷ é",
         "一二a一", "Ab ABc dEF", "e\u0301 ª\u0301", "a-b'c_d --''", "  \t lead", "trail \u3000 ",
         "▁a ▁ b▁", "\u180e \U00031350\ua7cb1\u212a", "\x0b\x0c", "SSsſ aaa"]


def variants():
    """(family, changed keys): what no published file has, but the format allows."""
    def pre(*steps):
        return {"normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}

    def cut(kind, pattern, behavior, invert):
        return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior,
                "invert": invert}

    for invert in (False, True):
        for behavior in BEHAVIORS:
            for regex in (r"\s+", r"a*", r"\p{L}+|\p{N}{1,3}+"):
                yield "qwen2", pre(cut("Regex", regex, behavior, invert), BYTE_MARK)
            yield "qwen2", pre(cut("String", "a b", behavior, invert), BYTE_MARK)
    for regex in REGEXES:
        yield "qwen2", pre(cut("Regex", regex, "Isolated", False), BYTE_MARK)
    yield "qwen2", pre({"type": "Digits", "individual_digits": False}, BYTE_MARK)
    yield "qwen2", pre({"type": "Digits", "individual_digits": True},
                       {**BYTE_MARK, "add_prefix_space": True, "use_regex": True})
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
        yield "qwen2", {"normalizer": {"type": form}}
    for scheme in ("first", "always", "never"):
        mark = {**MARK, "prepend_scheme": scheme}
        yield "llama2", {"normalizer": None, "pre_tokenizer": mark}
        yield "llama2", pre(cut("Regex", r"\p{N}+", "Isolated", False), {**mark, "split": False})
    for normalizer in ({"type": "Strip", "strip_left": True, "strip_right": False},
                       {"type": "Strip", "strip_left": False, "strip_right": True},
                       {"type": "Replace", "pattern": {"Regex": "^a"}, "content": ""},
                       {"type": "Replace", "pattern": {"String": "a"}, "content": "bb"}):
        yield "llama2", {"normalizer": normalizer, "pre_tokenizer": MARK}
    for decoder in (None, {"type": "Strip", "content": "a", "start": 2, "stop": 0},
                    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never",
                     "split": True},
                    {"type": "Sequence", "decoders": [
                        {"type": "Fuse"},
                        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                        {"type": "Strip", "content": " ", "start": 2, "stop": 0}]},
                    {"type": "Replace", "pattern": {"Regex": "[▁a]+"}, "content": "-"}):
        yield "llama2", {"decoder": decoder}
    yield "llama2", {"post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2],
                                        "cls": ["<s>", 1], "trim_offsets": True,
                                        "add_prefix_space": False}}


def expected_variants(documents):
    result = []
    for family, changes in variants():
        tokenizer = Tokenizer.from_str(json.dumps({**documents[family], **changes}))
        ids = [tokenizer.encode(text).ids for text in SHORT]
        result.append({"family": family, "changes": changes, "ids": ids,
                       "decoded": [tokenizer.decode(i, skip_special_tokens=True) for i in ids]})
    return {"texts": SHORT, "variants": result}


def save(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False,
                                                            separators=(",", ":"))
    path.write_text(lines + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    corpus = make_corpus(n_random=24, seed=7)
    save(out / "corpus.json", [item.hex() for item in corpus])
    documents = {}
    for name in FAMILIES:
        text = make_tokenizer(name)
        documents[name] = json.loads(text)
        save(out / name / "tokenizer.json", text)
        save(out / name / "expected.json", expected_of(text, corpus, seed=11))
    save(out / "variants.json", expected_variants(documents))


if __name__ == "__main__":
    main()

"""The demo model's corpus and tokenizer: Python's standard library, cleaned, and a BPE of it.

Used by make_demo_model.py. Files are held out whole, by a hash of their names; what a file adds is
its text and, as a document of its own, its inner functions moved to column 0: prompts often start
with a function, and files seldom do.
"""

import ast
import concurrent.futures
import hashlib
import itertools
import re
import textwrap
import warnings

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
VOCAB = 2048
BOS_ID, EOS_ID = VOCAB - 2, VOCAB - 1

# Tables, generated text and files that are broken on purpose teach no Python.
SKIPPED = re.compile(r"(^|/)(site-packages|dist-packages|pydoc_data|config-[^/]*|encodings|"
                     r"__phello__|lib2to3/tests/data|test/encoded_modules|cjkencodings)(/|$)")
TEST = re.compile(r"(^|/)(idle_)?tests?(/|$)|/test_")
HELD_OUT_SHARE = 0.04  # of the files, chosen by a hash of their names

# Where a reader might begin: a statement at column 0 that no decorator stands above.
TOP_LEVEL = re.compile(r"(?m)(?<=\n\n)(?=(?:@|class |def |async def |import |from )\w)")


# ---- corpus -------------------------------------------------------------------------------------


def clean(text):
    """Drops a licence or history block at the top, and trailing blanks."""
    lines = [line.rstrip() for line in text.expandtabs(8).split("\n")]
    head = 0
    while head < len(lines) and (not lines[head] or lines[head].startswith("#")):
        head += 1
    if head > 4:
        lines = lines[head:]
    return "\n".join(lines).strip("\n") + "\n"


def is_prose_of_code(text):
    """False for tables: long lines, or mostly digits, escapes and punctuation."""
    letters = sum(c.isalpha() or c.isspace() or c == "_" for c in text)
    return 200 < len(text) < 400_000 and letters > 0.66 * len(text) and \
        max(map(len, text.split("\n"))) < 400


def inner_functions(text):
    """The functions inside others, and the static methods, each moved to column 0; "" if none."""
    found, lines = [], text.split("\n")
    for outer in ast.walk(ast.parse(text)):
        if not isinstance(outer, (ast.FunctionDef, ast.ClassDef)):
            continue
        for node in outer.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            names = [arg.arg for arg in node.args.args[:1]]
            if names in (["self"], ["cls"], ["_self"]) or node.end_lineno - node.lineno < 2:
                continue
            moved = textwrap.dedent("\n".join(lines[node.lineno - 1:node.end_lineno]))
            if parses(moved):
                found.append(moved)
    return "\n\n\n".join(dict.fromkeys(found)) + "\n" if found else ""


def parses(text):
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def read_file(path):
    """-> (text, its inner functions), or None for a file that doesn't count."""
    warnings.simplefilter("ignore", SyntaxWarning)
    try:
        text = clean(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return None
    if not is_prose_of_code(text) or not parses(text):
        return None
    return text, inner_functions(text)


def read_corpus(library):
    """-> {"library": [text], "tests": [text], "held_out": [text]}, in the order of names.

    The library's part holds everybody's inner functions too: it is what prompts look like."""
    names = sorted(p.relative_to(library).as_posix() for p in library.rglob("*.py"))
    names = [name for name in names if not SKIPPED.search(name)]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        files = list(pool.map(read_file, [library / name for name in names], chunksize=8))
    corpus, seen = {"library": [], "tests": [], "held_out": []}, set()
    for name, file in zip(names, files):
        if file is None or file[0] in seen:
            continue
        seen.add(file[0])
        draw = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
        if draw < HELD_OUT_SHARE:
            corpus["held_out"].append(file[0])
            continue
        corpus["tests" if TEST.search(name) else "library"].append(file[0])
        if file[1]:
            corpus["library"].append(file[1])
    return corpus


# ---- tokenizer ----------------------------------------------------------------------------------


def train_tokenizer(texts):
    """A byte-level BPE with DeepSeek-Coder's pre-tokenizer; the two special tokens come last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([])

    def isolated(pattern):
        return pre_tokenizers.Split(Regex(pattern), "isolated")

    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        isolated("[\r\n]"),
        isolated(r"\s?\p{L}+"),
        isolated(r"\s?\p{P}+"),
        isolated("[一-龥ࠀ-一가-퟿]+"),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True,
                                           use_regex=True)
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    added = [AddedToken(t, normalized=True, special=True) for t in (BOS, EOS)]
    tokenizer.add_special_tokens(added)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, BOS_ID)])
    if [tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)] != [BOS_ID, EOS_ID]:
        raise SystemExit(f"the corpus gives fewer than {VOCAB - 2} BPE entries")
    return tokenizer


def encode_stream(tokenizer, texts):
    """-> ids, a list of `BOS file EOS` one after another, and starts: where a window may begin
    behind a BOS of its own. A piece ends with a newline, which is a token by itself, so the pieces
    of a file encode to what the whole file does."""
    pieces = [TOP_LEVEL.split(text) for text in texts]
    encoded = iter(tokenizer.encode_batch_fast(list(itertools.chain.from_iterable(pieces)),
                                               add_special_tokens=False))
    ids, starts = [], []
    for file_pieces in pieces:
        ids.append(BOS_ID)
        for piece in itertools.islice(encoded, len(file_pieces)):
            starts.append(len(ids))
            ids.extend(piece.ids)
        ids.append(EOS_ID)
    return ids, starts

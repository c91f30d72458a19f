#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens equal those of Hugging Face's tokenizers.

    test_tokenizer.py PRINT_TOKENS ROOT

Trains a byte-level BPE on the project's documents, then encodes them and unusual text
with both; likewise with the expressions of Llama 3 (and ignore_merges) and of Qwen (and
NFC). Needs tokenizers and numpy; $LONGHAUL_TORCH names a Python that may have
them. Without them the test is skipped with a message.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

from skip_without import skip_without

PROGRAM, ROOT = sys.argv[1:3]
try:
    import numpy
    from tokenizers import (ByteLevelBPETokenizer, Regex, Tokenizer, models,
                            normalizers, pre_tokenizers, trainers)
except ImportError as error:
    skip_without("tokenizers or numpy", error, "LONGHAUL_TORCH",
            "our tokens are Hugging Face's")


def strange(seed):
    """Returns any assigned characters, spaces of all kinds, parts of English
    words."""
    chance = random.Random(seed)
    parts = []
    for _ in range(3000):
        kind = chance.randrange(6)
        if kind == 0:
            parts.append(chance.choice([" ", "  ", "\n", "\t", "\u00a0", "\u3000",
                                        "\r\n", "   ", "\u2028", "\x85",
                                        " \n ", "\n\n"]))
        elif kind == 1:
            parts.append(chance.choice([
                "don't", "we'll", "I'M", "'s", "12", "1234567", "the",
                "training", "l'\u00e9t\u00e9", "'\u017f", "...", "({",
                # combining marks, out of order too, and Hangul letters
                "e\u0301", "a\u0323\u0302", "a\u0302\u0323", "\u212b",
                "\u0915\u093c", "\u1112\u1161\u11ab", "\u09c7\u09be"]))
        else:
            c = chr(chance.choice([chance.randrange(0x250),
                                   chance.randrange(0x3000),
                                   chance.randrange(0x11000)]))
            # Unicode versions differ in their latest characters.
            if unicodedata.category(c) not in ("Cn", "Cs", "Co"):
                parts.append(c)
    return "".join(parts)


def of_words(expression, normalizer=None, **model):
    """Returns an untrained tokenizer that splits text by an expression."""
    made = Tokenizer(models.BPE(**model))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(expression), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if normalizer:
        made.normalizer = normalizer
    return made


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def compare(name, trained, texts, folder):
    """Compares all tokens; returns the number of texts with others."""
    wrong = 0
    path = pathlib.Path(folder, "tokenizer.json")
    trained.save(str(path))
    for i, text in enumerate(texts):
        file = pathlib.Path(folder, "text")
        file.write_bytes(text.encode())
        done = subprocess.run([PROGRAM, path, file], capture_output=True)
        if done.returncode:
            sys.exit(done.stderr.decode())
        got = numpy.frombuffer(done.stdout, "<u4").tolist()
        want = trained.encode(text).ids
        if got != want:
            at = next((k for k, (a, b) in enumerate(zip(got, want))
                       if a != b), min(len(got), len(want)))
            print(f"FAILED: {name}: text {i}, token {at}: "
                  f"{[trained.id_to_token(t) for t in got[at-2:at+3]]}, not "
                  f"{[trained.id_to_token(t) for t in want[at-2:at+3]]}",
                  file=sys.stderr)
            wrong += 1
    return wrong


def main():
    documents = sorted(map(str, pathlib.Path(ROOT, "docs").rglob("*.md")))
    texts = [pathlib.Path(d).read_text(encoding="utf-8") for d in documents]
    odd = [strange(seed) for seed in range(20)]
    trained = ByteLevelBPETokenizer()
    trained.train(documents, vocab_size=2000, min_frequency=2,
                  show_progress=False)
    llama3 = of_words(LLAMA3, ignore_merges=True)
    qwen2 = of_words(LLAMA3.replace("{1,3}", ""), normalizers.NFC())
    trainer = trainers.BpeTrainer(
        vocab_size=1000, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    for one in llama3, qwen2:
        one.train(documents[:8], trainer)
    fewer = json.loads(llama3.to_str())  # other words are whole ones alone
    del fewer["model"]["merges"][300:]
    llama3 = Tokenizer.from_str(json.dumps(fewer))
    cases = (("GPT-2", trained, texts + odd), ("Llama 3", llama3, texts[:4] + odd),
             ("Qwen 2", qwen2, texts[:4] + odd))
    with tempfile.TemporaryDirectory() as folder:
        wrong = sum(compare(*case, folder) for case in cases)
    print(f"{sum(len(case[2]) for case in cases) - wrong} passed, {wrong} failed")
    sys.exit(wrong > 0)


main()

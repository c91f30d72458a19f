#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens equal those of Hugging Face's tokenizers.

    test_tokenizer.py PRINT_TOKENS ROOT

Trains a byte-level BPE on the project's documents, then encodes them and unusual text
with both. Needs tokenizers and numpy; $LONGHAUL_TORCH names a Python that may have
them. Without them the test is skipped with a message.
"""
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
    from tokenizers import ByteLevelBPETokenizer
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
                                        "\r\n", "   ", "\u2028", "\x85"]))
        elif kind == 1:
            parts.append(chance.choice(["don't", "we'll", "I'M", "'s", "12",
                                        "the", "training", "l'\u00e9t\u00e9"]))
        else:
            c = chr(chance.choice([chance.randrange(0x250),
                                   chance.randrange(0x3000),
                                   chance.randrange(0x11000)]))
            # Unicode versions differ in their latest characters.
            if unicodedata.category(c) not in ("Cn", "Cs", "Co"):
                parts.append(c)
    return "".join(parts)


def main():
    documents = sorted(map(str, pathlib.Path(ROOT, "docs").rglob("*.md")))
    trained = ByteLevelBPETokenizer()
    trained.train(documents, vocab_size=2000, min_frequency=2,
                  show_progress=False)
    texts = [pathlib.Path(d).read_text(encoding="utf-8") for d in documents]
    texts += [strange(seed) for seed in range(20)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
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
                print(f"FAILED: text {i}, token {at}: "
                      f"{[trained.id_to_token(t) for t in got[at-2:at+3]]}, not "
                      f"{[trained.id_to_token(t) for t in want[at-2:at+3]]}",
                      file=sys.stderr)
                wrong += 1
    print(f"{len(texts) - wrong} passed, {wrong} failed")
    sys.exit(wrong > 0)


main()

/* SPDX-License-Identifier: Apache-2.0 */
/* A text to train on: random letters. */
#ifndef TEST_TRAINING_TEXT_H
#define TEST_TRAINING_TEXT_H

#include "test.h"

#include <stdint.h>

/* Writes `n` letters; fails the test if the file cannot be written. */
static inline void training_text(const char *path, int n)
{
    FILE *file = fopen(path, "w");
    uint32_t state = 1;
    CHECK(file != NULL);
    for (int i = 0; file && i < n; i++) {
        state = state * 1664525 + 1013904223;
        fputc("etaoin shrdlu\n"[(state >> 24) % 14], file);
    }
    if (file)
        CHECK_INT(fclose(file), 0);
}

#endif

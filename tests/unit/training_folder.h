/* SPDX-License-Identifier: Apache-2.0 */
/* A test program's folder for its runs, from folder_begin() to folder_end(),
 * with a text to train on and the runs' checkpoints. */
#ifndef TEST_TRAINING_FOLDER_H
#define TEST_TRAINING_FOLDER_H

#include "test.h"
#include "training_text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], text_path[80];

/* Creates the folder and a text with this many letters; false: there is no
 * folder. Needs _GNU_SOURCE. */
static inline bool folder_begin(const char *name, int n_letters)
{
    snprintf(folder, sizeof folder, "/tmp/longhaul-%s-XXXXXX", name);
    if (!mkdtemp(folder))
        return false;
    snprintf(text_path, sizeof text_path, "%s/text", folder);
    training_text(text_path, n_letters);
    return true;
}

/* Removes the folder. */
static inline void folder_end(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK_INT(system(command), 0);
}

/* Reads a checkpoint file of the run in subfolder `run`; the caller frees it.
 * NULL, and a failed check, if it cannot be read. */
static inline char *saved_file(const char *run, unsigned step, const char *file,
                               size_t *size)
{
    char path[256], *bytes = NULL;
    snprintf(path, sizeof path, "%s/%s/step-%08u/%s", folder, run, step, file);
    FILE *in = fopen(path, "rb");
    *size = 0;
    if (in && fseek(in, 0, SEEK_END) == 0) {
        *size = (size_t)ftell(in);
        rewind(in);
        bytes = malloc(*size + 1);
        if (bytes && fread(bytes, 1, *size, in) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    CHECK_MSG(bytes != NULL, "%s cannot be read", path);
    if (in)
        fclose(in);
    return bytes;
}

/* Reads a checkpoint's weights; the caller frees them. */
static inline char *saved_weights(const char *run, unsigned step, size_t *size)
{
    return saved_file(run, step, "model.safetensors", size);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that a test program has for its runs, from folder_begin() to
 * folder_end(), a text in it to train on, and what runs save there. */
#ifndef TEST_TRAINING_FOLDER_H
#define TEST_TRAINING_FOLDER_H

#include "test.h"
#include "training_text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], text_path[80];

/* The folder, and a text of so many letters; false: there is no folder. The
 * program needs _GNU_SOURCE. */
static inline bool folder_begin(const char *name, int n_letters)
{
    snprintf(folder, sizeof folder, "/tmp/longhaul-%s-XXXXXX", name);
    if (!mkdtemp(folder))
        return false;
    snprintf(text_path, sizeof text_path, "%s/text", folder);
    training_text(text_path, n_letters);
    return true;
}

static inline void folder_end(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK_INT(system(command), 0);
}

/* A file of a checkpoint, to be freed: of the run whose checkpoints are in the
 * folder `run` of the folder. NULL, and a failed check, where it is not there.
 */
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

static inline char *saved_weights(const char *run, unsigned step, size_t *size)
{
    return saved_file(run, step, "model.safetensors", size);
}

#endif

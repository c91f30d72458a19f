/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target, without libFuzzer, on the files and folders given as
 * arguments. A missing folder counts as empty. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>

static int n_files;

static void run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    size_t size = (size_t)ftell(file);
    rewind(file);
    /* exact size, to detect overruns */
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size)
        exit(1);
    fclose(file);
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    n_files++;
}

static void run_path(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder && errno == ENOENT)
        return;
    if (!folder) {
        run_file(path);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        run_file(name);
    }
    closedir(folder);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run_path(argv[i]);
    printf("%d inputs\n", n_files);
    return n_files == 0;
}

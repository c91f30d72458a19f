/* SPDX-License-Identifier: Apache-2.0 */
/* Checks output files before a command runs: each must be writable and differ
 * from all inputs and other outputs. */
#define _XOPEN_SOURCE 700
#include "inputs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* File that the command line names. */
typedef struct named_file {
    char what[40]; /* "--html", "PIPELINE" */
    const char *typed;
    char *place; /* own; for a missing file, its future path */
    char *links; /* own: `typed`, if derived */
    struct stat info;
    bool exists, is_written, is_special;
} named_file;

/* Resolves a missing file's path: its folder without symbolic links, plus its
 * name. NULL: no such folder, or no memory. */
static char *resolve_path(const char *path, unsigned links)
{
    char next[4096];
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char *folder = strndup(path, slash ? (size_t)(slash - path) + 1 : 0);
    char *real = folder ? realpath(*folder ? folder : ".", NULL) : NULL;
    char *place = NULL;
    free(folder);
    if (!real)
        return NULL;
    const ssize_t n = readlink(path, next, sizeof next - 1);
    next[n < 0 ? 0 : n] = '\0';
    if (n > 0)
        name = next; /* dangling symbolic link */
    if (n > 0 && next[0] == '/') {
        free(real);
        return links > 0 ? resolve_path(next, links - 1) : NULL;
    }
    const size_t room = strlen(real) + strlen(name) + 2;
    place = malloc(room);
    if (place)
        snprintf(place, room, "%s/%s", real, name);
    free(real);
    if (place && n > 0) {
        char *last = links > 0 ? resolve_path(place, links - 1) : NULL;
        free(place);
        return last;
    }
    return place;
}

/* Fills in *file for a path from the command line; is_written: the command
 * writes it. A missing file gets its resolved path, which the caller frees. */
static void name_file(named_file *file, const char *path, bool is_written)
{
    file->typed = path;
    file->is_written = is_written;
    file->exists = stat(path, &file->info) == 0;
    file->is_special = file->exists && !S_ISREG(file->info.st_mode);
    file->place = file->exists ? NULL : resolve_path(path, 8);
}

/* Checks whether two names refer to one file; devices and pipes never do. */
static bool is_same_file(const named_file *a, const named_file *b)
{
    if (a->is_special || b->is_special)
        return false;
    if (a->exists && b->exists)
        return a->info.st_dev == b->info.st_dev &&
               a->info.st_ino == b->info.st_ino;
    return !a->exists && !b->exists && a->place && b->place &&
           strcmp(a->place, b->place) == 0;
}

/* Lists the files that the options name; returns their number. */
static uint32_t list_option_files(const cli_option *options, uint32_t n,
                                  const void *settings, named_file *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        const cli_option *o = &options[i];
        const bool is_written =
            o->type == CLI_OUTPUT || o->type == CLI_APPENDED;
        const char *path;
        if (!is_written &&
            (o->type != CLI_TEXT ||
             (o->words != CLI_WORDS_FILES && o->words != CLI_WORDS_FOLDERS &&
              o->words != CLI_WORDS_METHODS_OR_FILES)))
            continue;
        memcpy(&path, (const char *)settings + o->at, sizeof path);
        if (!path ||
            (o->words == CLI_WORDS_METHODS_OR_FILES && cli_is_method(path)))
            continue;
        snprintf(out[count].what, sizeof out[count].what, "--%s", o->name);
        name_file(&out[count++], path, is_written);
    }
    return count;
}

/* Returns the file's path with the message orders on links beside a
 * schedule, S.links.csv for S.csv; the caller frees it. */
static char *make_link_order_path(const char *path)
{
    size_t len = strlen(path);
    if (len > 4 && strcmp(path + len - 4, ".csv") == 0)
        len -= 4;
    char *links = malloc(len + sizeof ".links.csv");
    if (links)
        snprintf(links, len + sizeof ".links.csv", "%.*s.links.csv", (int)len,
                 path);
    return links;
}

/* Lists all files that the command line names and those that the command uses
 * by default; returns their number. */
static uint32_t list_all_files(const cli *c, named_file *out)
{
    const cli_command *k = c->command;
    uint32_t n = list_option_files(cli_common_options, cli_n_common_options,
                                   &c->common, out);
    n += list_option_files(k->options, k->n_options, c->settings, out + n);
    for (uint32_t i = 0; i < c->n_operands; i++) {
        if (strcmp(c->operands[i], "-") == 0)
            continue;
        snprintf(out[n].what, sizeof out[n].what, "the input");
        name_file(&out[n++], c->operands[i], false);
    }
    for (uint32_t i = 0, n_named = n; i < n_named; i++) {
        const size_t len = strlen(out[i].typed);
        if (out[i].is_written || len < 4 ||
            strcmp(out[i].typed + len - 4, ".csv") != 0)
            continue;
        snprintf(out[n].what, sizeof out[n].what, "its link orders");
        if ((out[n].links = make_link_order_path(out[i].typed))) {
            name_file(&out[n], out[n].links, false);
            n++;
        }
    }
    if (c->common.output && k->writes_links) {
        char *links = make_link_order_path(c->common.output);
        snprintf(out[n].what, sizeof out[n].what, "the link orders next to -o");
        if (links) {
            out[n].links = links;
            name_file(&out[n++], links, true);
        }
    }
    if (cli_default_output(c)) {
        snprintf(out[n].what, sizeof out[n].what, "the default output file");
        name_file(&out[n++], cli_default_output(c), true);
    }
    return n;
}

/* Fails with a usage error: two options name one file, of which at least one
 * is written. */
static lh_status reject_same_file(cli *c, const named_file *a,
                                  const named_file *b)
{
    if (a->is_written && b->is_written)
        return cli_usage(c,
                         "%s and %s are the same file: %.200s; name another "
                         "file",
                         a->what, b->what, b->typed);
    const named_file *written = a->is_written ? a : b;
    return cli_usage(c, "%s would overwrite %s: %.200s; name another file",
                     written->what, a->is_written ? b->what : a->what,
                     written->typed);
}

/* Lists and resolves all files from the command line; *n is their number. NULL:
 * no memory. */
static named_file *resolve_all_files(cli *c, uint32_t *n)
{
    const cli_command *k = c->command;
    const size_t most =
        2 * ((size_t)cli_n_common_options + k->n_options + c->n_operands) + 2;
    named_file *all = calloc(most, sizeof *all);
    *n = all ? list_all_files(c, all) : 0;
    return all;
}

/* Frees the n named files and their resolved paths. */
static void release_files(named_file *all, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        free(all[i].place);
        free(all[i].links);
    }
    free(all);
}

lh_status cli_check_same_files(cli *c)
{
    uint32_t n;
    named_file *all = resolve_all_files(c, &n);
    if (!all)
        return cli_no_memory(c);
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < n && status == LH_OK; i++)
        for (uint32_t j = 0; all[i].is_written && j < n && status == LH_OK; j++)
            if (i != j && (j > i || !all[j].is_written) &&
                is_same_file(&all[i], &all[j]))
                status = reject_same_file(c, &all[i], &all[j]);
    release_files(all, n);
    return status;
}

lh_status cli_check_named_file(cli *c, const char *path)
{
    uint32_t n;
    named_file *all = resolve_all_files(c, &n);
    if (!all)
        return cli_no_memory(c);
    named_file named = {.what = "a file referenced by the input"};
    name_file(&named, path, false);
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < n && status == LH_OK; i++)
        if (all[i].is_written && is_same_file(&all[i], &named))
            status = reject_same_file(c, &all[i], &named);
    free(named.place);
    release_files(all, n);
    return status;
}

/* --- writability -------------------------------------------------------- */

const char *cli_default_output(const cli *c)
{
    const cli_command *k = c->command;
    if (c->common.output || !k->default_output ||
        (c->common.json && !k->default_with_json))
        return NULL;
    return k->default_output;
}

/* Checks the output file that is written without -o: fails if it exists, is not
 * empty, and lacks the signature that files of this command begin with. */
static lh_status check_default(cli *c, const char *path)
{
    enum { HEAD = 4096 };
    char head[HEAD];
    struct stat info;
    FILE *file = NULL;
    size_t len = 0;
    if (stat(path, &info) != 0 || info.st_size == 0)
        return LH_OK;
    if (S_ISREG(info.st_mode) && (file = fopen(path, "rb")))
        len = fread(head, 1, HEAD - 1, file);
    if (file)
        fclose(file);
    head[len] = '\0';
    if (strstr(head, c->command->default_signature))
        return LH_OK;
    return cli_error(c, LH_EIO,
                     "%s exists and was not written by 'longhaul %s'; name "
                     "another file, or this one, with -o",
                     path, c->command->name);
}

/* Fails unless every output file named by the `count` options can be created or
 * overwritten. */
static lh_status check_writable(cli *c, const cli_option *options,
                                uint32_t count, const void *settings)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *path;
        if (options[i].type != CLI_OUTPUT)
            continue;
        memcpy(&path, (const char *)settings + options[i].at, sizeof path);
        if (path)
            CLI_TRY(lh_file_writable(path, &c->err));
    }
    return LH_OK;
}

lh_status cli_check_outputs(cli *c)
{
    const char *path = cli_default_output(c);
    CLI_TRY(check_writable(c, cli_common_options, cli_n_common_options,
                           &c->common));
    CLI_TRY(check_writable(c, c->command->options, c->command->n_options,
                           c->settings));
    if (path)
        CLI_TRY(lh_file_writable(path, &c->err));
    return path ? check_default(c, path) : LH_OK;
}

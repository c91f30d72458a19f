/* SPDX-License-Identifier: Apache-2.0 */
#include "chakra_view.h"

#include "inputs.h"

#include <longhaul/experimental/chakra.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Limits: bytes of a path, bytes of a trace file, ranks. */
enum { MOST_PATH = 4096, MOST_BYTES = 256 << 20, MOST_RANKS = 65536 };

static const char first_suffix[] = ".0.et";

/* Returns `path`'s length without `suffix`; 0: the path does not end with
 * it. */
static size_t prefix_length(const char *path, const char *suffix)
{
    const size_t len = strlen(path), end = strlen(suffix);
    return len > end && strcmp(path + len - end, suffix) == 0 ? len - end : 0;
}

bool cli_is_chakra(const char *path)
{
    return prefix_length(path, ".et") > 0;
}

/* The files of all ranks. */
typedef struct traces {
    uint32_t n, most;
    lh_chakra_file *files; /* with their own names and data */
} traces;

/* Frees the names and texts of the execution traces read so far. */
static void release(traces *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        free((char *)t->files[i].name);
        lh_text_free((char *)t->files[i].data);
    }
    free(t->files);
}

/* Reads one execution trace file, at `path`, and appends it to `t` as the next
 * rank's trace. */
static lh_status read_rank(cli *c, const char *path, traces *t)
{
    if (t->n == t->most) {
        const uint32_t most = t->most ? 2 * t->most : 16;
        lh_chakra_file *files = realloc(t->files, most * sizeof *files);
        if (!files)
            return cli_no_memory(c);
        t->files = files;
        t->most = most;
    }
    char *data = NULL, *name = malloc(strlen(path) + 1);
    size_t len;
    if (!name)
        return cli_no_memory(c);
    memcpy(name, path, strlen(path) + 1);
    lh_status status = lh_file_read(path, MOST_BYTES, &data, &len, &c->err);
    if (status != LH_OK) {
        free(name);
        return status;
    }
    t->files[t->n++] = (lh_chakra_file){name, data, len};
    return LH_OK;
}

/* Reads the execution trace files of ranks 0, 1 and so on until one is missing.
 * `first`: the path of rank 0's file. */
static lh_status read_ranks(cli *c, const char *first, traces *t)
{
    char path[MOST_PATH];
    const size_t len = prefix_length(first, first_suffix);
    if (!len || len > MOST_PATH - 32)
        return cli_error(c, LH_EINPUT,
                         "%s: give the trace of rank 0, PREFIX.0.et", first);
    for (uint32_t rank = 0;; rank++) {
        snprintf(path, sizeof path, "%.*s.%" PRIu32 ".et", (int)len, first,
                 rank);
        if (rank && access(path, F_OK) != 0)
            return LH_OK;
        if (rank == MOST_RANKS)
            return cli_error(c, LH_EINPUT, "%s: is above the limit of %d ranks",
                             path, MOST_RANKS);
        CLI_TRY(read_rank(c, path, t));
    }
}

/* Prints the replayed traces as JSON: the iteration time, and each rank's
 * times. */
static lh_status print_json(cli *c, const lh_chakra *r)
{
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < r->n_ranks; i++)
        json_array_append_new(
            ranks, json_pack("{s:I, s:o, s:o}", "nodes",
                             (json_int_t)r->ranks[i].n_nodes, "end_s",
                             cli_seconds(r->ranks[i].end_ns), "compute_s",
                             cli_seconds(r->ranks[i].compute_ns)));
    return cli_put_json(c, json_pack("{s:o, s:o}", "makespan_s",
                                     cli_seconds(r->total_ns), "ranks", ranks));
}

/* Prints the replayed traces as text: the iteration time, and the ranks that
 * compute the longest and the shortest time. */
static void print_text(cli *c, const lh_chakra *r)
{
    char total[CLI_TIME_TEXT], busy[CLI_TIME_TEXT], idle[CLI_TIME_TEXT];
    uint32_t most = 0, least = 0;
    for (uint32_t i = 1; i < r->n_ranks; i++) {
        if (r->ranks[i].compute_ns > r->ranks[most].compute_ns)
            most = i;
        if (r->ranks[i].compute_ns < r->ranks[least].compute_ns)
            least = i;
    }
    cli_print(c,
              "iteration     %s (%" PRIu32
              " rank%s, replayed by dependencies)\n"
              "compute       %s on rank %" PRIu32 ", the most; %s on rank "
              "%" PRIu32 ", the least\n",
              cli_time_text(r->total_ns, total), r->n_ranks,
              r->n_ranks == 1 ? "" : "s",
              cli_time_text(r->ranks[most].compute_ns, busy), most,
              cli_time_text(r->ranks[least].compute_ns, idle), least);
}

lh_status cli_chakra_replay(cli *c, const char *path)
{
    traces t = {0};
    lh_chakra *replay = NULL;
    for (uint32_t i = 0; i < c->command->n_options; i++)
        if (cli_is_given(c, c->command->options[i].name))
            return cli_usage(c,
                             "--%s has no effect on an execution trace of "
                             "Chakra; omit it",
                             c->command->options[i].name);
    lh_status status = read_ranks(c, path, &t);
    if (status == LH_OK)
        status = lh_chakra_replay(t.files, t.n, &replay, &c->err);
    if (status == LH_OK && c->common.json)
        status = print_json(c, replay);
    else if (status == LH_OK)
        print_text(c, replay);
    lh_chakra_free(replay);
    release(&t);
    return status;
}

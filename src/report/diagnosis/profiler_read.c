/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/profiler_internal.h"

#include "base/sort.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- one file ------------------------------------------------------------- */

/* Frees a profiled rank's contents, not the struct itself. */
static void free_profiled_rank(lhi_profiled_rank *r)
{
    for (uint32_t i = 0; i < r->n_groups; i++)
        free(r->groups[i].ranks);
    for (size_t i = 0; i < r->n_files; i++)
        free(r->files[i].name);
    free(r->groups);
    free(r->files);
    free(r->ops);
    free(r->file);
}

/* Returns the file name in a path: the part after the last slash, borrowed from
 * `path`. */
static const char *get_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns the number of the rank whose trace file in the rank map is `path`;
 * LH_NONE if there is none. */
static uint32_t find_rank_by_file(const lh_rank_map *map, const char *path)
{
    for (uint32_t i = 0; map && i < map->n_ranks; i++)
        if (map->ranks[i].file &&
            (strcmp(map->ranks[i].file, path) == 0 ||
             strcmp(map->ranks[i].file, get_base_name(path)) == 0))
            return map->ranks[i].rank;
    return LH_NONE;
}

/* Sets a file's rank from the rank map's file names. LH_EINPUT: the trace
 * itself names another rank. */
static lh_status check_file_rank(const lhi_profiler *p, lhi_profiled_rank *r,
                                 lh_error *err)
{
    uint32_t by_file = find_rank_by_file(p->map, r->file);
    if (by_file == LH_NONE)
        return LH_OK;
    if (r->rank != LH_NONE && r->rank != by_file)
        return lhi_fail(err, LH_EINPUT,
                        "%s: is the trace of rank %" PRIu32
                        " by its own data, but of rank %" PRIu32
                        " by %s: correct one of them",
                        r->file, r->rank, by_file, p->map->file);
    r->rank = by_file;
    return LH_OK;
}

/* Appends a file's operations to those of its rank, which may have several
 * files with different steps. */
static lh_status append_operations(lhi_profiled_rank *to,
                                   const lhi_profiled_rank *from, lh_error *err)
{
    for (size_t i = 0; i < from->n_ops; i++) {
        LHI_TRY(lhi_profiler_grow_array((void **)&to->ops, to->n_ops,
                                        &to->ops_room, sizeof *to->ops, err));
        to->ops[to->n_ops++] = from->ops[i];
    }
    return LH_OK;
}

/* Appends a trace file to the rank's list of files. Takes over the file's name,
 * which is freed on failure. */
static lh_status add_file(lhi_profiled_rank *rank, lhi_profiled_file file,
                          lh_error *err)
{
    lh_status status =
        lhi_profiler_grow_array((void **)&rank->files, rank->n_files,
                                &rank->files_room, sizeof *rank->files, err);
    if (status == LH_OK)
        rank->files[rank->n_files++] = file;
    else
        free(file.name);
    return status;
}

/* Returns a trace file's time span in ns: from the first start to the last end
 * of its n operations or, if n is 0, of its GPU and CPU activity. */
static void find_span(const lhi_rank_op *ops, size_t n,
                      const lhi_activity *activity, int64_t *from_ns,
                      int64_t *to_ns)
{
    *from_ns = n ? INT64_MAX : activity->start_ns;
    *to_ns = n ? INT64_MIN : activity->end_ns;
    for (size_t i = 0; i < n; i++) {
        *from_ns = ops[i].cpu_ns < *from_ns ? ops[i].cpu_ns : *from_ns;
        *to_ns = ops[i].cpu_end_ns > *to_ns ? ops[i].cpu_end_ns : *to_ns;
    }
}

/* Checks whether `more`, a further file for a rank, has the same operations and
 * activity as `file`, or the first operations of `file`. */
static bool is_same_file(const lhi_profiled_rank *rank,
                         const lhi_profiled_file *file,
                         const lhi_profiled_rank *more)
{
    const lhi_activity *x = &file->activity, *y = &more->activity;
    if (file->n_ops < more->n_ops || x->start_ns != y->start_ns ||
        (more->n_ops == 0 &&
         (x->end_ns != y->end_ns || x->compute_ns != y->compute_ns ||
          x->communication_ns != y->communication_ns)))
        return false;
    for (size_t i = 0; i < more->n_ops; i++) {
        const lhi_rank_op *a = &rank->ops[file->first_op + i];
        const lhi_rank_op *b = &more->ops[i];
        if (a->op != b->op || a->chunk != b->chunk ||
            a->microbatch != b->microbatch || a->cpu_ns != b->cpu_ns ||
            a->cpu_end_ns != b->cpu_end_ns)
            return false;
    }
    return true;
}

/* Checks whether two trace files of a rank, `file` and the new `more`, cover
 * the same time: their spans overlap by at least half the shorter one. */
static bool is_same_time(const lhi_profiled_rank *rank,
                         const lhi_profiled_file *file,
                         const lhi_profiled_rank *more)
{
    int64_t from, to, more_from, more_to;
    find_span(file->n_ops ? rank->ops + file->first_op : NULL, file->n_ops,
              &file->activity, &from, &to);
    find_span(more->ops, more->n_ops, &more->activity, &more_from, &more_to);
    int64_t begin = from > more_from ? from : more_from;
    int64_t end = to < more_to ? to : more_to;
    int64_t shorter =
        to - from < more_to - more_from ? to - from : more_to - more_from;
    return begin < end && (end - begin) / 2 >= shorter / 4;
}

/* Returns the first of a rank's files for which is_same(rank, file, more)
 * holds; NULL if there is none. */
static const lhi_profiled_file *
find_file(const lhi_profiled_rank *rank, const lhi_profiled_rank *more,
          bool (*is_same)(const lhi_profiled_rank *, const lhi_profiled_file *,
                          const lhi_profiled_rank *))
{
    for (size_t i = 0; i < rank->n_files; i++)
        if (is_same(rank, &rank->files[i], more))
            return &rank->files[i];
    return NULL;
}

/* Appends `more`, a further file, to a rank. LH_EINPUT: it has other operations
 * in the same time as an earlier file, so it must come from another rank. */
static lh_status append_file(lhi_profiler *p, lhi_profiled_rank *rank,
                             lhi_profiled_rank *more, lh_error *err)
{
    const lhi_profiled_file *again = find_file(rank, more, is_same_file);
    const lhi_profiled_file *other =
        again ? NULL : find_file(rank, more, is_same_time);
    if (other)
        return lhi_fail(err, LH_EINPUT,
                        "%s: is a trace of rank %" PRIu32
                        ", as %s is, of the same time, but with other "
                        "operations; give one trace per rank, or correct "
                        "'rank' in the file's 'distributedInfo'",
                        more->file, more->rank,
                        other->name ? other->name : rank->file);
    if (again && more->n_ops == 0)
        lhi_defect_add(p->remarks, LHI_REMARK_DOUBLED, 1, "%s: is as %s",
                       more->file, again->name ? again->name : rank->file);
    if (!again) {
        lhi_profiled_file file = {more->file, rank->n_ops, more->n_ops,
                                  more->activity};
        more->file = NULL;
        LHI_TRY(add_file(rank, file, err));
        lhi_activity_add(&rank->activity, &more->activity);
    }
    return append_operations(rank, more, err);
}

/* Adds `r`'s operations, read from one file, to the rank with its number or, if
 * there is none, adds a new rank. Frees or keeps `r`'s contents, also on
 * failure. */
static lh_status add_rank_file(lhi_profiler *p, lhi_profiled_rank *r,
                               lh_error *err)
{
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (p->ranks[i].rank == r->rank && r->rank != LH_NONE) {
            lh_status status = append_file(p, &p->ranks[i], r, err);
            free_profiled_rank(r);
            return status;
        }
    size_t room = p->room;
    lh_status status = lhi_profiler_grow_array((void **)&p->ranks, p->n_ranks,
                                               &room, sizeof *p->ranks, err);
    p->room = (uint32_t)room;
    if (status == LH_OK)
        status = add_file(
            r, (lhi_profiled_file){NULL, 0, r->n_ops, r->activity}, err);
    if (status == LH_OK)
        p->ranks[p->n_ranks++] = *r;
    else
        free_profiled_rank(r);
    return status;
}

lh_status lhi_profiled_rank_name(lhi_profiled_rank *r, const char *name,
                                 lh_error *err)
{
    size_t len = strlen(name) + 1;
    r->file = malloc(len);
    if (!r->file)
        return lhi_fail_nomem(err);
    memcpy(r->file, name, len);
    return LH_OK;
}

lh_status lhi_profiler_add_events(lhi_profiler *p, lhi_profiled_rank *r,
                                  lhi_file_events *events, lh_error *err)
{
    lh_status status = check_file_rank(p, r, err);
    if (status == LH_OK)
        status = lhi_profiler_measure_activity(p, events, r, err);
    if (status == LH_OK)
        status = lhi_profiler_derive_passes(events, err);
    if (status == LH_OK)
        status = lhi_profiler_add_operations(events, r, err);
    if (status == LH_OK)
        return add_rank_file(p, r, err);
    free_profiled_rank(r);
    return status;
}

lh_status lhi_profiler_prepare_map(lhi_profiler *p, lh_error *err)
{
    if (p->map && !p->name_used &&
        !(p->name_used = calloc(p->map->n_names + 1u, sizeof *p->name_used)))
        return lhi_fail_nomem(err);
    return LH_OK;
}

lh_status lhi_profiler_read_file(lhi_profiler *p, lhi_gzip_stream *zip,
                                 const char *name, lh_error *err)
{
    lhi_file_events events = {0};
    lhi_profiled_rank r = {.rank = LH_NONE};
    LHI_TRY(lhi_profiler_prepare_map(p, err));
    LHI_TRY(lhi_profiled_rank_name(&r, name, err));
    lh_status status = lhi_profiler_read_events(p, zip, name, &r, &events, err);
    if (status == LH_OK)
        status = lhi_profiler_add_events(p, &r, &events, err);
    else
        free_profiled_rank(&r);
    lhi_file_events_fini(&events);
    return status;
}

void lhi_profiler_fini(lhi_profiler *p)
{
    for (uint32_t i = 0; i < p->n_ranks; i++)
        free_profiled_rank(&p->ranks[i]);
    free(p->ranks);
    free(p->name_used);
}

/* --- all files ------------------------------------------------------------ */

/* Checks whether no file contains an operation or any GPU or CPU activity. */
static bool is_empty(const lhi_profiler *p)
{
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (p->ranks[i].n_ops || p->ranks[i].activity.span_ns)
            return false;
    return true;
}

/* Fails with LH_EINPUT if the files are empty, or if one of several has no
 * known rank. */
static lh_status check_ranks(lhi_profiler *p, lh_error *err)
{
    if (is_empty(p))
        return lhi_fail(err, LH_EINPUT,
                        "%s: has no operator, range or kernel: record with "
                        "torch.profiler, and export in its on_trace_ready "
                        "(docs/diagnose.md)",
                        p->ranks[0].file);
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        lhi_profiled_rank *r = &p->ranks[i];
        if (r->rank == LH_NONE && p->n_ranks > 1)
            return lhi_fail(
                err, LH_EINPUT,
                "%s: does not contain its rank, as traces with an initialised "
                "torch.distributed do: set it in a map (--map), ranks: [{rank: "
                "0, stage: 0, replica: 0, file: %s}, ...]",
                r->file, get_base_name(r->file));
        lhi_defect_add(p->remarks, LHI_REMARK_UNMARKED, r->no_steps,
                       "rank %" PRIu32, r->rank);
    }
    return LH_OK;
}

/* Compares operations by step, CPU start, kind, chunk and microbatch, for
 * lhi_sort(). */
static int compare_ops(const void *a, const void *b)
{
    const lhi_rank_op *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? 1 : -1;
    if (x->cpu_ns != y->cpu_ns)
        return x->cpu_ns > y->cpu_ns ? 1 : -1;
    if (x->op != y->op)
        return x->op > y->op ? 1 : -1;
    if (x->chunk != y->chunk)
        return x->chunk > y->chunk ? 1 : -1;
    return (x->microbatch > y->microbatch) - (x->microbatch < y->microbatch);
}

/* Sorts a rank's operations by step; drops duplicates and those outside any
 * step. */
static void sort_ops(lhi_profiler *p, lhi_profiled_rank *r)
{
    size_t kept = 0;
    lhi_sort(r->ops, r->n_ops, sizeof *r->ops, compare_ops);
    for (size_t i = 0; i < r->n_ops; i++) {
        const lhi_rank_op op = r->ops[i];
        if (op.step < 0)
            continue;
        if (kept && compare_ops(&r->ops[kept - 1], &op) == 0)
            lhi_defect_add(p->remarks, LHI_REMARK_DOUBLED, 1,
                           "%s: %s of microbatch %" PRId32 " in step %" PRId64,
                           r->file, lhi_op_name((lhi_op_type)op.op),
                           op.microbatch, op.step);
        else
            r->ops[kept++] = op;
    }
    r->n_ops = kept;
}

/* --- rows ----------------------------------------------------------------- */

/* A step's start: the earliest operation on any rank. */
typedef struct step_start {
    int64_t step, start_ns;
} step_start;

/* Compares step starts by step number, then by time, for lhi_sort(). */
static int compare_starts(const void *a, const void *b)
{
    const step_start *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? 1 : -1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Computes each step's start: the time at which its first operation starts
 * on any rank. *out: n_out entries sorted by step; release with free(). */
static lh_status find_starts(const lhi_profiler *p, step_start **out,
                             size_t *n_out, lh_error *err)
{
    step_start *list = NULL;
    size_t n = 0, room = 0, kept = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++)
        for (size_t k = 0; k < p->ranks[i].n_ops; k++) {
            const lhi_rank_op *op = &p->ranks[i].ops[k];
            if (k && op[-1].step == op->step) {
                if (op->start_ns < list[n - 1].start_ns)
                    list[n - 1].start_ns = op->start_ns;
                continue;
            }
            lh_status status = lhi_profiler_grow_array((void **)&list, n, &room,
                                                       sizeof *list, err);
            if (status != LH_OK) {
                free(list);
                return status;
            }
            list[n++] = (step_start){op->step, op->start_ns};
        }
    lhi_sort(list, n, sizeof *list, compare_starts);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || list[kept - 1].step != list[i].step)
            list[kept++] = list[i];
    *out = list;
    *n_out = kept;
    return LH_OK;
}

/* Compares the step numbers of two step starts, for bsearch(). */
static int compare_steps(const void *a, const void *b)
{
    const step_start *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

/* A step's pass, sorted by direction, chunk and microbatch. */
typedef struct pass_position {
    bool back;
    int32_t chunk, microbatch;
    size_t at;
} pass_position;

/* Compares pass positions by direction, chunk and microbatch, for
 * lhi_sort(). */
static int compare_positions(const void *a, const void *b)
{
    const pass_position *x = a, *y = b;
    if (x->back != y->back)
        return x->back ? 1 : -1;
    if (x->chunk != y->chunk)
        return x->chunk > y->chunk ? 1 : -1;
    return (x->microbatch > y->microbatch) - (x->microbatch < y->microbatch);
}

/* Builds an index of a step's forward and backward passes (F, D and B) among n
 * operations, sorted by pass for binary search, into *out (n_out entries);
 * release with free(). */
static lh_status index_passes(const lhi_rank_op *ops, size_t n,
                              pass_position **out, size_t *n_out, lh_error *err)
{
    pass_position *list = malloc((n + 1) * sizeof *list);
    if (!list)
        return lhi_fail_nomem(err);
    *n_out = 0;
    for (size_t i = 0; i < n; i++)
        if (lhi_range_is_pass(ops[i].op) && ops[i].op != LHI_OP_WEIGHT)
            list[(*n_out)++] =
                (pass_position){ops[i].op != LHI_OP_FORWARD, ops[i].chunk,
                                ops[i].microbatch, i};
    lhi_sort(list, *n_out, sizeof *list, compare_positions);
    *out = list;
    return LH_OK;
}

/* Returns a message's order number within its step: the index, in the
 * sorted list of n passes, of the pass that sends or receives it; 0 if
 * there is none. */
static size_t find_order(const lhi_rank_op *message, const pass_position *list,
                         size_t n)
{
    pass_position key = {message->op != LHI_OP_FORWARD_SEND &&
                             message->op != LHI_OP_FORWARD_RECV,
                         message->chunk, message->microbatch, 0};
    const pass_position *found =
        bsearch(&key, list, n, sizeof *list, compare_positions);
    return found ? found->at : 0;
}

/* Converts a rank's operation to the recording's form: its start is relative to
 * the step's start, start_ns. `order`: its index among equal kinds. */
static lhi_op_row make_row(const lhi_profiled_rank *r, const lhi_rank_op *op,
                           size_t order, int64_t start_ns)
{
    bool pass = lhi_range_is_pass(op->op);
    return (lhi_op_row){
        .start_ns = op->start_ns - start_ns,
        .ns = op->end_ns > op->start_ns ? op->end_ns - op->start_ns : 0,
        .rank = r->rank,
        .index = (uint32_t)order,
        .microbatch = pass ? op->microbatch : -1,
        .stage = (uint16_t)r->stage,
        .replica = (uint16_t)r->replica,
        .stage_chunk = -1,
        .chunk = (int16_t)(pass ? op->chunk : -1),
        .op = op->op};
}

/* Adds a rank's n operations of one step, which starts at start_ns, to the
 * recording. */
static lh_status add_step(const lhi_profiled_rank *r, const lhi_rank_op *ops,
                          size_t n, int64_t start_ns, lhi_rows *rows,
                          lh_error *err)
{
    pass_position *places;
    size_t n_places;
    LHI_TRY(index_passes(ops, n, &places, &n_places, err));
    lh_status status = LH_OK;
    for (size_t i = 0; status == LH_OK && i < n; i++) {
        size_t order = lhi_range_is_message(ops[i].op)
                           ? find_order(&ops[i], places, n_places)
                           : i;
        lhi_op_row row = make_row(r, &ops[i], order, start_ns);
        status = lhi_rows_add(rows, (uint64_t)ops[i].step, &row, err);
        if (status == LH_OK)
            lhi_rows_mark_preposted(rows);
    }
    free(places);
    if (status == LH_EINPUT)
        lhi_fail_add_context(err, "%s", r->file);
    return status;
}

/* Adds all operations of a rank to the recording, step by step; starts[]: start
 * times of the n_starts steps. */
static lh_status add_rank(const lhi_profiled_rank *r, const step_start *starts,
                          size_t n_starts, lhi_rows *rows, lh_error *err)
{
    for (size_t from = 0, to; from < r->n_ops; from = to) {
        step_start key = {.step = r->ops[from].step};
        for (to = from + 1; to < r->n_ops && r->ops[to].step == key.step;)
            to++;
        const step_start *start =
            bsearch(&key, starts, n_starts, sizeof *starts, compare_steps);
        LHI_TRY(
            add_step(r, &r->ops[from], to - from, start->start_ns, rows, err));
    }
    return LH_OK;
}

lh_status lhi_profiler_write_rows(lhi_profiler *p, lhi_rows *rows,
                                  lh_error *err)
{
    step_start *starts = NULL;
    size_t n_starts = 0;
    LHI_TRY(check_ranks(p, err));
    LHI_TRY(lhi_profiler_find_ranks(p, err));
    for (uint32_t i = 0; i < p->n_ranks; i++)
        sort_ops(p, &p->ranks[i]);
    LHI_TRY(lhi_profiler_correct_clocks(p, err));
    LHI_TRY(lhi_profiler_time_messages(p, err));
    LHI_TRY(find_starts(p, &starts, &n_starts, err));
    lh_status status = LH_OK;
    for (uint32_t i = 0; status == LH_OK && i < p->n_ranks; i++)
        if (p->ranks[i].stage != LH_NONE)
            status = add_rank(&p->ranks[i], starts, n_starts, rows, err);
    free(starts);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank reads its part of a checkpoint, so different ranks may find
 * different checkpoints damaged. Rank 0 names a checkpoint and all ranks read
 * it; if one fails, all retry with the previous checkpoint. */
#include "runtime/engine/resume.h"

#include "base/fail.h"
#include "runtime/engine/all_reduce.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Tag rounds above all steps: see docs/formats/wire.md. */
enum { FIRST_TURN = 1 << 23 };

/* Sent by rank 0 rather than a step number: the path itself is the checkpoint.
 */
static const double path_is_checkpoint = -1;

/* State of the agreement on a checkpoint. */
typedef struct agreement {
    const lhi_resume_options *o;
    uint64_t turn;
    uint64_t *steps; /* rank 0 */
    size_t n_left;
    uint64_t newest; /* newest step found */
    bool is_first_whole;
    char newest_why[sizeof((lh_error *)0)->text]; /* rank 0 */
} agreement;

/* Checks whether this rank is rank 0, which chooses the checkpoint. */
static bool is_leader(const agreement *r)
{
    return lhi_net_rank(r->o->net) == 0;
}

/* Passes a remark (a sentence for the user) to the caller's callback, which
 * prints it. */
static void print_remark(const agreement *r, const char *text)
{
    if (r->o->remarks.print)
        r->o->remarks.print(r->o->remarks.context, text);
}

/* Lists the checkpoints again if newer ones than the listed ones exist: a run
 * that still writes removes its older ones. */
static void find_newer(agreement *r)
{
    uint64_t *steps = NULL;
    size_t n = 0;
    lh_error ignored;
    if (lhi_train_find(r->o->path, &steps, &n, &ignored) != LH_OK)
        return;
    if (!steps || n == 0 || steps[n - 1] <= r->newest) {
        free(steps);
        return;
    }
    free(r->steps);
    r->steps = steps;
    r->n_left = n;
    r->newest = steps[n - 1];
}

/* Selects the next older checkpoint on rank 0 and sends its step to all ranks
 * as *which. */
static lh_status choose_checkpoint(agreement *r, double *which, lh_error *err)
{
    *which = 0;
    if (is_leader(r) && r->steps && r->n_left == 0)
        find_newer(r);
    if (is_leader(r) && r->steps && r->n_left == 0)
        return lhi_fail(
            err, LH_EINPUT,
            "%.150s: none of its checkpoints is intact; the newest: %.300s",
            r->o->path, r->newest_why);
    if (is_leader(r))
        *which = r->steps ? (double)r->steps[--r->n_left] : path_is_checkpoint;
    return lhi_all_reduce_sum(r->o->net, r->turn++, which, 1, r->o->stop, err);
}

/* Passes a remark to the caller: checkpoint `which` is skipped because of rank
 * `rank`'s error `why`. */
static void report_skipped(agreement *r, double which, uint32_t rank,
                           const char *why)
{
    char text[sizeof r->newest_why + 600];
    snprintf(text, sizeof text,
             "%.400s: step %.0f is skipped: rank %" PRIu32 ": %s", r->o->path,
             which, rank, why);
    print_remark(r, text);
    if (r->is_first_whole && rank == 0)
        snprintf(r->newest_why, sizeof r->newest_why, "%s", why);
    else if (r->is_first_whole) /* its host may lack the folder */
        snprintf(r->newest_why, sizeof r->newest_why,
                 "rank %" PRIu32 ": %.400s", rank, why);
    r->is_first_whole = false;
}

/* Determines over all ranks whether each has read its part of checkpoint
 * `which` (*all). `failed`, `mine`: this rank's result and error. The first
 * failed rank's error becomes a remark. */
static lh_status agree(agreement *r, double which, bool failed, lh_error *mine,
                       bool *all, lh_error *err)
{
    uint32_t n = lhi_net_n_ranks(r->o->net), first = 0;
    double *failures = calloc(n, sizeof *failures);
    if (!failures)
        return lhi_fail_nomem(err);
    failures[lhi_net_rank(r->o->net)] = failed;
    lh_status status =
        lhi_all_reduce_sum(r->o->net, r->turn, failures, n, r->o->stop, err);
    while (status == LH_OK && first < n && failures[first] == 0)
        first++;
    free(failures);
    if (status != LH_OK)
        return status;
    *all = first == n;
    if (!*all)
        LHI_TRY(lhi_send_text_to_root(r->o->net, first, r->turn, mine->text,
                                      sizeof mine->text, r->o->stop, err));
    if (!*all && is_leader(r))
        report_skipped(r, which, first, mine->text);
    r->turn++;
    return LH_OK;
}

/* Checks that the checkpoint that all ranks have read is rank 0's, by its
 * checksum `check`: hosts that do not share the folder may have another one of
 * this step. */
static lh_status compare_checkpoints(agreement *r, double check, lh_error *err)
{
    double first = is_leader(r) ? check : 0;
    LHI_TRY(
        lhi_all_reduce_sum(r->o->net, r->turn++, &first, 1, r->o->stop, err));
    return first == check
               ? LH_OK
               : lhi_fail(err, LH_EINPUT,
                          "%.300s: is another checkpoint than that of rank 0: "
                          "all hosts need the same folder, or equal copies of "
                          "it",
                          r->o->path);
}

/* Reads checkpoint `which` on this rank, and determines whether all ranks could
 * read it (*all). */
static lh_status try_checkpoint(agreement *r, double which, bool *all,
                                lh_error *err)
{
    const uint64_t step = which < 0 ? 0 : (uint64_t)which;
    lhi_load_result loaded;
    lh_error why = {0};
    lh_status status = lhi_train_load_one(
        r->o->train, r->o->path, which < 0 ? NULL : &step, r->o->checkpoint,
        is_leader(r) ? &r->o->remarks : NULL, &loaded, &why);
    *all = status == LH_OK;
    if (status != LH_OK && (!loaded.is_damaged || which < 0)) {
        if (err)
            *err = why;
        return status;
    }
    if (which >= 0)
        LHI_TRY(agree(r, which, status != LH_OK, &why, all, err));
    return *all ? compare_checkpoints(r, loaded.check, err) : LH_OK;
}

lh_status lhi_resume(const lhi_resume_options *options, lh_error *err)
{
    agreement r = {.o = options, .turn = FIRST_TURN, .is_first_whole = true};
    lh_status status = LH_OK;
    double which = 0;
    bool all = false;
    if (is_leader(&r))
        LHI_TRY(lhi_train_find(options->path, &r.steps, &r.n_left, err));
    if (r.steps && r.n_left > 0)
        r.newest = r.steps[r.n_left - 1];
    while (status == LH_OK && !all) {
        status = choose_checkpoint(&r, &which, err);
        if (status == LH_OK)
            status = try_checkpoint(&r, which, &all, err);
    }
    if (status == LH_OK && is_leader(&r) && !r.is_first_whole) {
        char text[600];
        snprintf(text, sizeof text, "%.400s: resuming from step %.0f",
                 options->path, which);
        print_remark(&r, text);
    }
    free(r.steps);
    return status;
}

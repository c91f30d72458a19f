/* SPDX-License-Identifier: Apache-2.0 */
/* Stop requests to the ranks of a run. Each rank reports its own to rank 0,
 * which ends the run for all after the iteration. */
#include "runtime/engine/worker.h"

#include <inttypes.h>
#include <stdio.h>

int lhi_job_find_stop_request(const lhi_job *job)
{
    int here = job->o.stop ? job->o.stop(job->o.context) : LH_STOP_NO;
    int there = job->stop_request ? atomic_load(job->stop_request) : LH_STOP_NO;
    return here > there ? here : there;
}

void lhi_run_worker_print_remark(const lhi_run_worker *w, const char *text)
{
    if (w->job->o.warning)
        w->job->o.warning(w->job->o.context, text);
}

/* Returns the strongest stop request to rank 0 so far (LH_STOP_NO: none);
 * prints a remark at the first one. */
static int get_own_request(lhi_run_worker *w)
{
    int asked = lhi_job_find_stop_request(w->job);
    if (asked != LH_STOP_NO && !atomic_exchange(&w->stop_reported, true))
        lhi_run_worker_print_remark(
            w, "stopping after this iteration; interrupt again to stop at "
               "once");
    return asked;
}

bool lhi_run_worker_stops_now(void *of)
{
    return get_own_request(of) == LH_STOP_NOW;
}

/* Prints which rank's stop request ends the run; stopped_by: 1 plus the rank.
 */
static void print_cause(const lhi_run_worker *w, uint32_t stopped_by)
{
    char text[80];
    snprintf(text, sizeof text,
             "rank %" PRIu32 " received a stop request: the run ends",
             stopped_by - 1);
    lhi_run_worker_print_remark(w, text);
}

bool lhi_run_worker_is_stopping(lhi_run_worker *w)
{
    if (get_own_request(w) != LH_STOP_NO)
        w->stopped_by = 1; /* rank 0 */
    else if (w->stopped_by && !atomic_exchange(&w->stop_reported, true))
        print_cause(w, w->stopped_by);
    return w->stopped_by > 0;
}

void lhi_run_worker_end_following(lhi_run_worker *w, const lhi_command *end)
{
    w->stopped_by = end->stopped_by;
    if (end->stopped_by && lhi_net_is_first_of_output(w->net))
        print_cause(w, end->stopped_by);
}

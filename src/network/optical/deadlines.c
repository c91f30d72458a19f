/* SPDX-License-Identifier: Apache-2.0 */
#include "network/optical/deadlines.h"

#include <stdlib.h>

/* Critical-path method state. */
typedef struct critical {
    const lhi_program *p;
    int64_t *takes;          /* per task: its message, from end to arrival */
    int64_t *end;            /* earliest */
    int64_t *latest;         /* start */
    uint32_t *order, n_done; /* tasks in topological order */
    uint32_t *next;          /* per device */
} critical;

/* Computes the shortest possible time of a task's message in ns, into *out: the
 * set-up of its circuit (setup_ns), then its transfer with `slots` slots on the
 * best candidate path; inside a site, over the pipeline's own link. Returns
 * false on allocation failure. */
static bool compute_fastest(lhi_network *network, int64_t setup_ns,
                            const lhi_optical_run_job *job, uint32_t task,
                            uint32_t slots, int64_t *out)
{
    const lhi_task *t = &job->program->tasks[task];
    uint32_t from, to;
    const lhi_route *route = lhi_program_route(job->program, task);
    *out = 0;
    if (!lhi_program_get_ends(job->program, job->sites, task, &from, &to)) {
        *out = route ? route->transfer_ns + route->latency_ns : 0;
        return true;
    }
    const lhi_paths *paths = lhi_network_paths(network, from, to);
    if (!paths)
        return false;
    for (uint32_t i = 0; i < paths->count; i++) {
        const lhi_path *path = &paths->paths[i];
        int64_t takes = setup_ns +
                        lhi_serialisation_ns(t->bits, path->mbps, slots) +
                        path->length_m * LHI_NS_PER_M;
        if (i == 0 || takes < *out)
            *out = takes;
    }
    return true;
}

/* Computes each task's earliest end and a topological order of the tasks
 * (forward pass of the critical-path method). */
static void compute_earliest_ends(critical *c)
{
    const lhi_program *p = c->p;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t d = 0; d < p->n_devices; d++)
            for (; c->next[d] < p->first[d + 1]; c->next[d]++) {
                uint32_t i = c->next[d], m = p->tasks[i].producer;
                int64_t at = i > p->first[d] ? c->end[i - 1] : 0;
                if (m != LH_NONE && c->end[m] < 0)
                    break;
                if (m != LH_NONE && c->end[m] + c->takes[m] > at)
                    at = c->end[m] + c->takes[m];
                c->end[i] = at + p->tasks[i].duration_ns;
                c->order[c->n_done++] = i;
                moved = true;
            }
    }
}

/* Computes each task's latest start such that the iteration ends at `ideal_ns`
 * (backward pass of the critical-path method). */
static void compute_latest_starts(critical *c, int64_t ideal_ns)
{
    const lhi_program *p = c->p;
    for (uint32_t k = c->n_done; k > 0; k--) {
        uint32_t i = c->order[k - 1], to = p->tasks[i].consumer;
        int64_t end = ideal_ns;
        if (i + 1 < p->first[p->tasks[i].device + 1])
            end = c->latest[i + 1];
        if (to != LH_NONE && c->latest[to] - c->takes[i] < end)
            end = c->latest[to] - c->takes[i];
        c->latest[i] = end - p->tasks[i].duration_ns;
    }
}

lh_status lhi_deadlines_compute(lhi_network *network, int64_t setup_ns,
                                const lhi_optical_run_job *job, uint32_t slots,
                                int64_t *deadline_ns, int64_t *ideal_ns)
{
    const lhi_program *p = job->program;
    uint32_t n = p->n_tasks;
    critical c = {.p = p,
                  .takes = calloc(n, sizeof *c.takes),
                  .end = malloc(n * sizeof *c.end),
                  .latest = calloc(n, sizeof *c.latest),
                  .order = calloc(n, sizeof *c.order),
                  .next = calloc(p->n_devices, sizeof *c.next)};
    bool ok = c.takes && c.end && c.latest && c.order && c.next;
    for (uint32_t i = 0; ok && i < n; i++) {
        c.end[i] = -1;
        if (p->tasks[i].consumer != LH_NONE)
            ok = compute_fastest(network, setup_ns, job, i, slots, &c.takes[i]);
    }
    if (ok) {
        for (uint32_t d = 0; d < p->n_devices; d++)
            c.next[d] = p->first[d];
        compute_earliest_ends(&c);
        *ideal_ns = 0;
        for (uint32_t i = 0; i < n; i++)
            if (c.end[i] > *ideal_ns)
                *ideal_ns = c.end[i];
        compute_latest_starts(&c, *ideal_ns);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t from, to;
            deadline_ns[i] = lhi_program_get_ends(p, job->sites, i, &from, &to)
                                 ? c.latest[p->tasks[i].consumer]
                                 : -1;
        }
    }
    free(c.takes);
    free(c.end);
    free(c.latest);
    free(c.order);
    free(c.next);
    return ok ? LH_OK : LH_ENOMEM;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Assigns ranks to hosts from the plan's placement. Ranks of one stage of one
 * replica are consecutive; then follow replicas and stages, or stages and
 * replicas, in the numbering of all programs that the plan supports. */
#include "interop/export/bundle.h"

#include "planner/layout/layout.h"

#include <inttypes.h>
#include <stdlib.h>

/* Rank assignment state. */
typedef struct path_walk {
    const lh_job *job;
    const lh_layout *layout;
    const lhi_layout_placement *places;
    lhi_launches *out;
    uint32_t **hosts; /* per datacenter and node; 0: not numbered yet */
    uint64_t next;    /* next rank */
} assignment_state;

/* Returns the first GPU, numbered within its datacenter, of stage `stage` in
 * replica `replica`. *datacenter receives the datacenter's index. */
static uint64_t find_first_gpu(const assignment_state *w, uint32_t stage,
                               uint32_t replica, uint32_t *datacenter)
{
    const lh_site_group *groups = w->places->sites->groups;
    uint32_t g = 0;
    for (; replica >= groups[g].replicas; g++)
        replica -= groups[g].replicas;
    const lhi_rank_location *at =
        &w->places->ranks[(size_t)g * w->layout->pipeline + stage];
    *datacenter = at->datacenter;
    return at->first_gpu + (uint64_t)replica * at->stride;
}

/* Appends consecutive ranks on a host to the launches. Extends the last launch
 * instead if the ranks continue its GPUs. */
static lh_status add_launch(lhi_launches *out, const lhi_launch *one,
                            lh_error *err)
{
    lhi_launch *last = out->n ? &out->all[out->n - 1] : NULL;
    if (last && last->datacenter == one->datacenter &&
        last->host == one->host &&
        last->first_gpu + last->n_ranks == one->first_gpu) {
        last->n_ranks += one->n_ranks;
        return LH_OK;
    }
    if (out->n == out->room) {
        uint32_t room = out->room ? 2 * out->room : 64;
        lhi_launch *more = realloc(out->all, room * sizeof *more);
        if (!more)
            return lhi_fail_nomem(err);
        out->all = more;
        out->room = room;
    }
    out->all[out->n++] = *one;
    return LH_OK;
}

/* Assigns the next `n` ranks to consecutive GPUs of a datacenter, from its GPU
 * number `gpu` on. Numbers a host when one of its GPUs is used first. */
static lh_status assign_gpus(assignment_state *w, uint32_t datacenter,
                             uint64_t gpu, uint64_t n, lh_error *err)
{
    const uint32_t per_node = w->job->datacenters[datacenter].gpus_per_node;
    while (n > 0) {
        uint32_t local = (uint32_t)(gpu % per_node);
        uint64_t here = per_node - local < n ? per_node - local : n;
        uint32_t *host = &w->hosts[datacenter][gpu / per_node];
        if (*host == 0)
            *host = ++w->out->n_hosts[datacenter];
        LHI_TRY(add_launch(w->out,
                           &(lhi_launch){datacenter, *host - 1, local,
                                         (uint32_t)here, w->next},
                           err));
        w->next += here;
        gpu += here;
        n -= here;
    }
    return LH_OK;
}

/* Assigns all ranks to GPUs in rank order, one (stage, replica) pair with all
 * its tensor and context ranks after the other. */
static lh_status assign_all_ranks(assignment_state *w, lh_error *err)
{
    const lh_layout *l = w->layout;
    bool by_stages = lh_layout_rank_order(l) != LH_OUTERMOST_DATA;
    uint64_t n_blocks = (uint64_t)l->pipeline * l->data;
    for (uint64_t b = 0; b < n_blocks; b++) {
        uint32_t stage = (uint32_t)(by_stages ? b / l->data : b % l->pipeline);
        uint32_t replica =
            (uint32_t)(by_stages ? b % l->data : b / l->pipeline);
        uint32_t datacenter;
        uint64_t gpu = find_first_gpu(w, stage, replica, &datacenter);
        LHI_TRY(assign_gpus(w, datacenter, gpu, lhi_group_size(l), err));
    }
    return LH_OK;
}

/* Allocates the host numbers of all nodes and the host counts of all
 * datacenters, all 0. */
static lh_status allocate_host_numbers(assignment_state *w, lhi_arena *mem,
                                       lh_error *err)
{
    const lh_job *job = w->job;
    w->hosts = LHI_NEW(mem, uint32_t *, job->n_datacenters);
    w->out->n_hosts = calloc(job->n_datacenters, sizeof *w->out->n_hosts);
    bool ok = w->hosts && w->out->n_hosts;
    for (uint32_t d = 0; ok && d < job->n_datacenters; d++) {
        w->hosts[d] = LHI_NEW(mem, uint32_t, job->datacenters[d].nodes);
        ok = w->hosts[d];
    }
    return ok ? LH_OK : lhi_fail_nomem(err);
}

lh_status lhi_launches_compute(const lh_plan *plan, lhi_launches *out,
                               lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_layout_placement places;
    assignment_state w = {.job = plan->job,
                          .layout = &plan->best.layout,
                          .places = &places,
                          .out = out};
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_layout_place(plan->job, w.layout, mem, &places, err);
    if (status == LH_OK)
        status = allocate_host_numbers(&w, mem, err);
    if (status == LH_OK)
        status = assign_all_ranks(&w, err);
    lhi_arena_free(mem);
    return status;
}

void lhi_launches_fini(lhi_launches *launches)
{
    free(launches->all);
    free(launches->n_hosts);
}

uint32_t lhi_launches_hosts_before(const lh_plan *plan,
                                   const lhi_launches *launches,
                                   uint32_t datacenter)
{
    uint32_t n = 0;
    for (uint32_t d = 0; d < datacenter && d < plan->job->n_datacenters; d++)
        n += launches->n_hosts[d];
    return n;
}

/* --- files ---------------------------------------------------------------- */

/* Checks whether file names keep a character of a datacenter's name: a letter,
 * a digit, '.', '_' or '-'. */
static bool is_kept_in_file_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

void lhi_bundle_add_site_name(lhi_text *out, const lh_plan *plan,
                              uint32_t datacenter)
{
    bool changed = false;
    for (const char *c = plan->job->datacenters[datacenter].name; *c; c++) {
        lhi_text_add(out, is_kept_in_file_name(*c) ? c : "_", 1);
        changed = changed || !is_kept_in_file_name(*c);
    }
    if (changed)
        lhi_text_printf(out, "@%" PRIu32, datacenter);
}

void lhi_bundle_add_hosts(lhi_text *out, const lh_plan *plan,
                          const lhi_launches *launches, uint32_t datacenter)
{
    const lh_datacenter *dc = &plan->job->datacenters[datacenter];
    lhi_text_puts(out, "# Hosts of ");
    lhi_text_add_escaped(out, dc->name, SIZE_MAX);
    lhi_text_printf(out,
                    ", %" PRIu32 " GPUs each, in rank order: replace each\n"
                    "# line by a host name.\n",
                    dc->gpus_per_node);
    for (uint32_t i = 0; i < launches->n_hosts[datacenter]; i++) {
        lhi_bundle_add_site_name(out, plan, datacenter);
        lhi_text_printf(out, "-%" PRIu32 "\n", i);
    }
}

/* Adds a launch's GPUs on its host, which has per_node GPUs, as "all" or as a
 * list such as "0,1,2,3". */
static void put_gpu_list(lhi_text *out, const lhi_launch *one,
                         uint32_t per_node)
{
    if (one->n_ranks == per_node) {
        lhi_text_puts(out, "all");
        return;
    }
    for (uint32_t i = 0; i < one->n_ranks; i++)
        lhi_text_printf(out, "%s%" PRIu32, i ? "," : "", one->first_gpu + i);
}

void lhi_bundle_add_nodes(lhi_text *out, const lh_plan *plan,
                          const lhi_launches *launches)
{
    lhi_text_puts(out,
                  "# Processes that launch.sh starts: one torchrun per line, "
                  "in rank order:\n"
                  "# host (its index over all host files), its GPUs, ranks, "
                  "the first rank, site\n");
    for (uint32_t i = 0; i < launches->n; i++) {
        const lhi_launch *one = &launches->all[i];
        lhi_text_printf(
            out, "%" PRIu32 " ",
            lhi_launches_hosts_before(plan, launches, one->datacenter) +
                one->host);
        put_gpu_list(out, one,
                     plan->job->datacenters[one->datacenter].gpus_per_node);
        lhi_text_printf(out, " %" PRIu32 " %" PRIu64 " ", one->n_ranks,
                        one->first_rank);
        lhi_bundle_add_site_name(out, plan, one->datacenter);
        lhi_text_puts(out, "\n");
    }
}

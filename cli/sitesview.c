/* SPDX-License-Identifier: Apache-2.0 */
/* In words, which datacenters have what. */
#include "view.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

typedef struct text {
    char *buffer;
    size_t room, len;
} text;

static void add(text *t, const char *format, ...) CLI_PRINTF(2, 3);

static void add(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(t->buffer + t->len, t->room - t->len, format, args);
    va_end(args);
    t->len += len > 0 ? (size_t)len : 0;
    if (t->len < t->room)
        return;
    t->len = t->room - 1;
    memcpy(t->buffer + t->room - 4, "...", 4); /* too long */
}

/* "west -> mid -> east (4, 2, 2 stages)" */
static void add_pipeline(text *t, const lh_job *job, const lh_site_group *group)
{
    for (uint32_t i = 0; i < group->n_parts; i++)
        add(t, "%s%s", i ? " -> " : "",
            job->datacenters[group->parts[i].datacenter].name);
    for (uint32_t i = 0; group->n_parts > 1 && i < group->n_parts; i++)
        add(t, "%s%" PRIu32, i ? ", " : " (", group->parts[i].stages);
    if (group->n_parts > 1)
        add(t, " stages)");
}

char *cli_sites_text(const lh_job *job, const lh_sites *sites, char *buffer,
                     size_t room)
{
    text t = {buffer, room, 0};
    bool crosses = false;
    buffer[0] = '\0';
    for (uint32_t g = 0; g < sites->n_groups; g++)
        crosses = crosses || sites->groups[g].n_parts > 1;
    if (sites->n_groups == 1) {
        add(&t, "pipeline ");
        add_pipeline(&t, job, &sites->groups[0]);
        return buffer;
    }
    if (crosses)
        add(&t, "%" PRIu32 " groups: ", sites->n_groups);
    else
        add(&t, "replicas ");
    for (uint32_t g = 0; g < sites->n_groups; g++) {
        const lh_site_group *group = &sites->groups[g];
        add(&t, "%s", !g ? "" : crosses ? "; " : ", ");
        if (crosses)
            add(&t, "%" PRIu32 " x ", group->replicas);
        add_pipeline(&t, job, group);
        if (!crosses)
            add(&t, " %" PRIu32, group->replicas);
    }
    return buffer;
}

/* Ranks of one stage of one replica follow each other; then come replicas and
 * stages, or stages and replicas. */
typedef struct run {
    FILE *out;
    const lh_job *job;
    uint64_t first, next;
    uint32_t datacenter;
} run;

static void end_run(const run *r)
{
    if (r->next > r->first)
        fprintf(r->out, "# Ranks %" PRIu64 " to %" PRIu64 ": %s\n", r->first,
                r->next - 1, r->job->datacenters[r->datacenter].name);
}

static void add_ranks(run *r, uint32_t datacenter, uint64_t n)
{
    if (datacenter != r->datacenter) {
        end_run(r);
        r->first = r->next;
        r->datacenter = datacenter;
    }
    r->next += n;
}

static uint32_t datacenter_of(const lh_site_group *group, uint32_t stage)
{
    uint32_t i = 0;
    for (; stage >= group->parts[i].stages; i++)
        stage -= group->parts[i].stages;
    return group->parts[i].datacenter;
}

void cli_put_ranks(FILE *out, const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    uint64_t gpus = (uint64_t)l->tensor * l->context * l->expert;
    run r = {.out = out, .job = plan->job};
    if (!l->sites || plan->job->n_datacenters == 1)
        return;
    if (l->outermost == LH_OUTERMOST_DATA) {
        for (uint32_t g = 0; g < l->sites->n_groups; g++)
            add_ranks(&r, l->sites->groups[g].parts[0].datacenter,
                      gpus * l->pipeline * l->sites->groups[g].replicas);
    } else {
        for (uint32_t s = 0; s < l->pipeline; s++)
            for (uint32_t g = 0; g < l->sites->n_groups; g++)
                add_ranks(&r, datacenter_of(&l->sites->groups[g], s),
                          gpus * l->sites->groups[g].replicas);
    }
    end_run(&r);
}

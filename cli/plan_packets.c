/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a plan's messages between datacenters packet by packet. */
#include "plan_packets.h"

#include "problem.h"
#include "values.h"
#include "view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cli_packets_show_progress(void *context, uint32_t done, uint32_t total)
{
    cli_progress(context, "packets: simulation %" PRIu32 " of %" PRIu32,
                 done < total ? done + 1 : total, total);
    return cli_interrupts() > 0;
}

/* Returns by how many percent `ns` exceeds `planned`. */
static double compute_excess(double ns, double planned)
{
    return planned > 0 ? 100 * (ns / planned - 1) : 0;
}

/* Prints a row per link. */
static void print_links(cli *c, const lh_packet_plan *r)
{
    cli_print(c,
              "\n%-20s  replicas  messages      MB  planned ms   mean ms   "
              "95 %% ms    worst ms  sent again %%  dropped %%\n",
              "link");
    for (uint32_t i = 0; i < r->n_links; i++) {
        const lh_packet_plan_link *l = &r->links[i];
        double sent = (double)l->counters.sent;
        cli_print(c,
                  "%-20s  %8" PRIu32 "  %8" PRIu32 "  %6.1f  %10.3f  %8.3f  "
                  "%8.3f  %10.3f  %12.3f  %9.3f\n",
                  l->name, l->replicas, l->messages, l->message_bytes * 1e-6,
                  l->planned_ns * 1e-6, l->mean_ns * 1e-6, l->p95_ns * 1e-6,
                  l->max_ns * 1e-6,
                  100 * (double)l->counters.retransmitted / sent,
                  100 * (double)l->counters.dropped / sent);
    }
}

/* Prints the result for people. */
static void print_text(cli *c, const cli_plan_packets *how,
                       const lh_packet_plan *r)
{
    const uint32_t gpus = r->links[0].gpus; /* on each link */
    cli_print(c,
              "iteration     planned %.6f s, by packets %.6f s (%+.2f %%), "
              "least %.6f, greatest %.6f\n",
              (double)r->planned_ns * 1e-9, r->mean_ns * 1e-9,
              compute_excess(r->mean_ns, (double)r->planned_ns),
              (double)r->least_ns * 1e-9, (double)r->greatest_ns * 1e-9);
    print_links(c, r);
    cli_print(c,
              "\n\"replicas\": those that send at the same time, each "
              "\"messages\" in an iteration, with %" PRIu32 " GPU%s. "
              "\"planned\": the closed form of the plan. ",
              gpus, gpus == 1 ? "" : "s");
    if (r->sample == LH_PACKET_ALL)
        cli_print(c, "Every message was simulated packet by packet");
    else
        cli_print(c,
                  "%" PRIu32 " message%s of each sender %s simulated packet by "
                  "packet; the times of the others were drawn from them",
                  r->sample, r->sample == 1 ? "" : "s",
                  r->sample == 1 ? "was" : "were");
    cli_print(c,
              ", with %" PRIu32 " seed%s. Collectives take the plan's "
              "times.\n",
              how->seeds, how->seeds == 1 ? "" : "s");
}

/* Returns a link's JSON object. */
static json_t *make_link(const lh_packet_plan_link *l)
{
    const lh_packet_counters *k = &l->counters;
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, "
        "s:I, s:I, s:I, s:I}",
        "link", l->name, "messages", (int)l->messages, "replicas",
        (int)l->replicas, "gpus", (int)l->gpus, "message_bytes",
        l->message_bytes, "planned_ns", l->planned_ns, "mean_ns", l->mean_ns,
        "p95_ns", l->p95_ns, "max_ns", l->max_ns, "sent", (json_int_t)k->sent,
        "delivered", (json_int_t)k->delivered, "lost", (json_int_t)k->lost,
        "dropped", (json_int_t)k->dropped, "retransmitted",
        (json_int_t)k->retransmitted, "timeouts", (json_int_t)k->timeouts,
        "max_queue_bytes", (json_int_t)k->max_queue_bytes, "events",
        (json_int_t)k->events);
}

/* Prints the result as JSON. */
static lh_status print_json(cli *c, const cli_plan_packets *how,
                            const lh_packet_plan *r)
{
    json_t *links = json_array();
    for (uint32_t i = 0; i < r->n_links; i++)
        json_array_append_new(links, make_link(&r->links[i]));
    json_t *object =
        json_pack("{s:s, s:I, s:i, s:s, s:I, s:f, s:I, s:I, s:o}", "longhaul",
                  "packet_plan/1", "seed", (json_int_t)c->common.seed, "seeds",
                  (int)how->seeds, "certainty", "simulated", "planned_ns",
                  (json_int_t)r->planned_ns, "mean_ns", r->mean_ns, "least_ns",
                  (json_int_t)r->least_ns, "greatest_ns",
                  (json_int_t)r->greatest_ns, "links", links);
    json_object_set_new(object, "sample",
                        r->sample == LH_PACKET_ALL ? json_null()
                                                   : json_integer(r->sample));
    return cli_put_json(c, object);
}

/* Writes the page of all links. */
static lh_status write_html(cli *c, const cli_plan_packets *how,
                            const lh_packet_plan *r)
{
    char planned[CLI_TIME_TEXT], mean[CLI_TIME_TEXT], *text;
    const char *facts[] = {
        "planned iteration", cli_time_text(r->planned_ns, planned),
        "by packets, mean", cli_time_text((int64_t)r->mean_ns, mean), NULL};
    size_t len;
    lh_packet_picture *pictures = calloc(r->n_links, sizeof *pictures);
    if (!pictures)
        return cli_no_memory(c);
    for (uint32_t i = 0; i < r->n_links; i++)
        pictures[i] =
            (lh_packet_picture){r->links[i].name, &r->links[i].record};
    lh_status status =
        lh_packets_html(cli_utf8_name(c, c->operands[0]), facts, pictures,
                        r->n_links, &text, &len, &c->err);
    free(pictures);
    CLI_TRY(status);
    return cli_write_text(c, how->html, text, len);
}

/* Simulates the plan that was read. */
static lh_status simulate(cli *c, const cli_plan_packets *how,
                          const lh_plan *plan)
{
    const lh_packet_plan_run run = {.size = sizeof run,
                                    .seed = c->common.seed,
                                    .n_seeds = how->seeds,
                                    .threads = how->threads,
                                    .sample = how->sample,
                                    .progress = cli_packets_show_progress,
                                    .context = c};
    lh_packet_plan *result = NULL;
    cli_interrupts_begin(c, CLI_INTERRUPT_ONCE);
    lh_status status = lh_packets_simulate_plan(plan, &run, &result, &c->err);
    cli_interrupts_end();
    cli_progress_end();
    CLI_TRY(status);
    if (how->html)
        status = write_html(c, how, result);
    if (status == LH_OK && c->common.json)
        status = print_json(c, how, result);
    else if (status == LH_OK)
        print_text(c, how, result);
    lh_packet_plan_free(result);
    return status;
}

lh_status cli_plan_packets_run(cli *c, const cli_plan_packets *how)
{
    cli_problem problem = {0};
    lh_status status = cli_problem_read(c, c->operands[0], false, &problem);
    if (status == LH_OK && !problem.plan)
        status = cli_usage(c,
                           "%s is a pipeline; packets needs a plan, whose "
                           "job describes its links",
                           c->operands[0]);
    if (status == LH_OK)
        status = simulate(c, how, problem.plan);
    cli_problem_fini(&problem);
    return status;
}

/* --- plan --network packets ----------------------------------------------- */

/* Returns the source text of a profile with `n` simulated links before those of
 * `old` (NULL: no profile). The caller frees it; NULL: out of memory. */
static char *make_source(const lh_profile *old, uint32_t n)
{
    static const char how[] = "simulated packets, not measured "
                              "(longhaul plan --network packets)";
    const char *before = old && old->source ? old->source : "";
    size_t size = strlen(before) + sizeof how + 40;
    char *text = malloc(size);
    if (text)
        snprintf(text, size, "%s%slinks 1 to %" PRIu32 ": %s", before,
                 *before ? "; " : "", n, how);
    return text;
}

lh_status cli_packet_job_make(cli *c, const lh_job *job, const lh_plan *plan,
                              uint32_t threads, cli_packet_job *out)
{
    const lh_packet_plan_run run = {.size = sizeof run,
                                    .seed = c->common.seed,
                                    .n_seeds = 5,
                                    .threads = threads,
                                    .progress = cli_packets_show_progress,
                                    .context = c};
    *out = (cli_packet_job){.job = *job};
    cli_interrupts_begin(c, CLI_INTERRUPT_ONCE);
    lh_status status = lh_packets_estimate_links(plan, &run, &out->links,
                                                 &out->n_estimated, &c->err);
    cli_interrupts_end();
    cli_progress_end();
    CLI_TRY(status);
    uint32_t n_old = job->profile ? job->profile->n_links : 0;
    lh_profile_link *links =
        realloc(out->links, (out->n_estimated + n_old) * sizeof *links);
    if (!links)
        return cli_no_memory(c);
    if (n_old > 0)
        memcpy(links + out->n_estimated, job->profile->links,
               n_old * sizeof *links);
    out->links = links;
    out->source = make_source(job->profile, out->n_estimated);
    if (!out->source)
        return cli_no_memory(c);
    if (job->profile)
        out->profile = *job->profile;
    else
        out->profile.name = "packets";
    out->profile.source = out->source;
    out->profile.links = links;
    out->profile.n_links = out->n_estimated + n_old;
    out->job.profile = &out->profile;
    return LH_OK;
}

void cli_packet_job_fini(cli_packet_job *job)
{
    free(job->source);
    free(job->links);
}

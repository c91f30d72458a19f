/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output for `longhaul optical`. */
#include "format/document/schema.h"
#include "network/optical/scenario.h"
#include "report/json/json_parts.h"

#include <longhaul/experimental/json_output.h>

/* Lists n integers in JSON: wide[0..n-1] or, if `wide` is NULL,
 * narrow[0..n-1]. */
static json_t *build_integers(const int64_t *wide, const uint32_t *narrow,
                              uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        list = lhi_json_append(
            list, json_integer(wide ? wide[i] : (int64_t)narrow[i]));
    return list;
}

/* Builds the JSON object with one job's results in an optical network run. */
static json_t *job_json(const lh_topology *t, const lh_optical_job *job)
{
    json_t *sites = json_array();
    for (uint32_t d = 0; sites && d < job->n_devices; d++)
        sites = lhi_json_append(
            sites, json_integer(lhi_topology_node_id(t, job->sites[d])));
    json_t *object = json_pack(
        "{s:o, s:o, s:o, s:o, s:I, s:f, s:f, s:f, s:f, s:f, s:o}",
        "iteration_ns",
        build_integers(job->iteration_ns, NULL, job->n_iterations), "labels",
        build_integers(NULL, job->labels, job->n_iterations), "requests",
        build_integers(NULL, job->requested, job->n_iterations), "refused",
        build_integers(NULL, job->refused, job->n_iterations), "blocked",
        (json_int_t)job->blocked, "iteration_s", job->iteration_s,
        "bubble_ratio", job->bubble_ratio, "blocking_probability",
        job->blocking_probability, "slots_held", job->slots_held,
        "lower_bound_s", (double)job->bound_ns / 1e9, "placement", sites);
    const bool ok =
        object && (!job->intact_ns ||
                   (lhi_json_set(object, "intact_ns",
                                 build_integers(job->intact_ns, NULL,
                                                job->n_iterations)) &&
                    lhi_json_set(object, "lost_s", json_real(job->lost_s)) &&
                    lhi_json_set(object, "cut_messages",
                                 json_integer((json_int_t)job->cut_messages))));
    return lhi_json_finish(object, ok);
}

/* Lists a run's outages in JSON. */
static json_t *outages_json(const lh_topology *t, const lh_optical_run *run)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < run->n_outages; i++) {
        const lh_outage *o = &run->outages[i];
        json_int_t a = lhi_topology_node_id(t, o->a);
        json_int_t b = lhi_topology_node_id(t, o->b);
        list = lhi_json_append(
            list, json_pack("{s:[I, I], s:I, s:f, s:o}", "link", a, b, "cable",
                            (json_int_t)o->cable, "down_s",
                            (double)o->down_ns / 1e9, "up_s",
                            o->up_ns < 0 ? json_null()
                                         : json_real((double)o->up_ns / 1e9)));
    }
    return list;
}

/* Builds the JSON of a run of the optical network: with one job, the job and
 * its seed; with several, a list of them. */
static json_t *run_json(const lh_topology *t, const lh_optical_run *run)
{
    json_t *object;
    if (run->n_jobs == 1) {
        object = job_json(t, &run->jobs[0]);
    } else {
        json_t *jobs = json_array();
        for (uint32_t j = 0; jobs && j < run->n_jobs; j++) {
            json_t *job = job_json(t, &run->jobs[j]);
            const bool done =
                job &&
                lhi_json_set(
                    job, "preempted_messages",
                    json_integer(
                        (json_int_t)run->jobs[j].preempted_messages)) &&
                lhi_json_set(
                    job, "warm_up_preempted_messages",
                    json_integer(
                        (json_int_t)run->jobs[j].warm_up_preempted_messages));
            jobs = lhi_json_append(jobs, lhi_json_finish(job, done));
        }
        object = json_pack("{s:o}", "jobs", jobs);
    }
    bool ok = object &&
              lhi_json_set(object, "seed", json_integer((json_int_t)run->seed));
    if (ok && run->jobs[0].intact_ns)
        ok = lhi_json_set(object, "outages", outages_json(t, run)) &&
             lhi_json_set(object, "background_cut",
                          json_integer((json_int_t)run->background_cut)) &&
             lhi_json_set(object, "background_lost",
                          json_integer((json_int_t)run->background_lost));
    return lhi_json_finish(object, ok);
}

/* Builds the JSON for one policy: its mean results with standard deviations,
 * and its runs by seed. */
static json_t *policy_json(const lh_topology *t, const lh_optical_policy *p)
{
    json_t *seeds = json_array();
    for (uint32_t k = 0; seeds && k < p->n_runs; k++)
        seeds = lhi_json_append(seeds, run_json(t, &p->runs[k]));
    json_t *object = json_pack(
        "{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "policy",
        lhi_assignment_name(p->assignment), "iteration_s", p->iteration_s,
        "iteration_s_sd", p->iteration_s_sd, "bubble_ratio", p->bubble_ratio,
        "bubble_ratio_sd", p->bubble_ratio_sd, "blocking_probability",
        p->blocking_probability, "blocking_probability_sd",
        p->blocking_probability_sd, "slots_held", p->slots_held, "collateral",
        p->collateral, "lower_bound_s", p->bound_s, "seeds", seeds);
    const bool ok =
        object && (!p->runs[0].jobs[0].intact_ns ||
                   lhi_json_set(object, "lost_s", json_real(p->lost_s)));
    return lhi_json_finish(object, ok);
}

/* Builds the JSON of one policy of a sweep's cell: means with half the widths
 * of their 95 % confidence intervals. */
static json_t *mean_json(const lh_optical_policy *p)
{
    return json_pack(
        "{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
        "policy", lhi_assignment_name(p->assignment), "seeds", (int)p->n_runs,
        "iteration_s", p->iteration_s, "iteration_s_ci95",
        lh_optical_half_width(p->iteration_s_sd, p->n_runs), "bubble_ratio",
        p->bubble_ratio, "bubble_ratio_ci95",
        lh_optical_half_width(p->bubble_ratio_sd, p->n_runs),
        "blocking_probability", p->blocking_probability,
        "blocking_probability_ci95",
        lh_optical_half_width(p->blocking_probability_sd, p->n_runs),
        "slots_held", p->slots_held, "collateral", p->collateral,
        "lower_bound_s", p->bound_s, "lost_s", p->lost_s);
}

lh_status lh_optical_sweep_format(const lh_optical_sweep *sweep, char **text,
                                  size_t *len, lh_error *err)
{
    json_t *cells = json_array();
    for (uint32_t c = 0; cells && c < sweep->n_cells; c++) {
        json_t *values = json_object(), *policies = json_object();
        bool ok = values && policies;
        for (uint32_t a = 0; ok && a < sweep->n_axes; a++) {
            const lh_optical_axis *axis = &sweep->axes[a];
            uint32_t v = lh_optical_sweep_value(sweep, c, a);
            ok = lhi_json_set(values, axis->key, json_string(axis->values[v]));
        }
        for (uint32_t k = 0; ok && k < sweep->cells[c]->n_policies; k++) {
            const lh_optical_policy *p = &sweep->cells[c]->policies[k];
            ok = lhi_json_set(policies, p->name, mean_json(p));
        }
        cells = lhi_json_append(
            cells,
            json_pack("{s:o, s:o}", "values", lhi_json_finish(values, ok),
                      "policies", lhi_json_finish(policies, ok)));
    }
    const lh_optical_choice best = lh_optical_sweep_best(sweep);
    return lhi_json_format_indented(
        json_pack("{s:o, s:{s:i, s:s, s:i}}", "cells", cells, "best", "cell",
                  (int)best.cell, "policy",
                  sweep->cells[best.cell]->policies[best.policy].name,
                  "stepwise_cell", (int)best.stepwise),
        2, text, len, err);
}

/* Lists a path's node ids in JSON, as in the topology file. */
static json_t *nodes_json(const lh_topology *t, const lhi_path *path)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i <= path->hops; i++)
        list = lhi_json_append(
            list, json_integer(lhi_topology_node_id(t, path->nodes[i])));
    return list;
}

/* Lists all candidate paths with their GSNR and rate in JSON. */
static json_t *paths_json(const lh_scenario *s)
{
    const lh_topology *t = s->topology;
    json_t *list = json_array();
    for (uint32_t a = 0; a < t->n_nodes; a++)
        for (uint32_t b = 0; list && b < t->n_nodes; b++) {
            const lhi_paths *paths =
                a != b ? lhi_network_paths(s->network, a, b) : NULL;
            for (uint32_t i = 0; paths && i < paths->count; i++) {
                const lhi_path *p = &paths->paths[i];
                list = lhi_json_append(
                    list,
                    json_pack("{s:o, s:f, s:f, s:f, s:s?}", "nodes",
                              nodes_json(t, p), "km",
                              (double)p->length_m / LHI_M_PER_KM, "gsnr_db",
                              p->gsnr_db, "gbps_per_slot",
                              (double)p->mbps / 1000, "format", p->format));
            }
        }
    return list;
}

lh_status lh_optical_format(const lh_scenario *scenario,
                            const lh_optical *optical, char **text, size_t *len,
                            lh_error *err)
{
    const lh_topology *t = lh_scenario_topology(scenario);
    json_t *policies = json_object();
    bool ok = policies != NULL;
    for (uint32_t i = 0; ok && i < optical->n_policies; i++)
        ok = lhi_json_set(policies, optical->policies[i].name,
                          policy_json(t, &optical->policies[i]));
    json_t *j = json_pack("{s:s, s:o}", "topology", lh_topology_name(t),
                          "policies", lhi_json_finish(policies, ok));
    if (t->gn)
        j = lhi_json_finish(
            j, j && lhi_json_set(j, "paths", paths_json(scenario)));
    return lhi_json_format_indented(j, 2, text, len, err);
}

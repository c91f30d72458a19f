/* SPDX-License-Identifier: Apache-2.0 */
/* Topologies and scenarios: parsed values, and errors with their reasons. */
#include "jobs.h"

#include "model/paths.h"
#include "network/optical/scenario.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/status.h>

#include <stdlib.h>

#define NETWORK                                                                \
    "longhaul: optical/1\n"                                                    \
    "topology: {nodes: [{id: 1}, {id: 2}, {id: 3}], links: ["                  \
    "{a: 1, b: 2, km: 100}, {a: 2, b: 3, km: 200}, {a: 1, b: 3, km: 400}]}\n"
#define JOB                                                                    \
    "job: {preset: 8b, stages: 2, placement: [1, 3], schedule: 1f1b, "         \
    "microbatches: 4}\n"
#define POLICIES "policies: {ksp-ff: {}}\n"

static void refused_topology(const char *text, const char *why)
{
    lh_topology *t = NULL;
    lh_error err = {0};
    lh_status status =
        lhi_topology_parse(text, strlen(text), "t.yaml", &t, &err);
    CHECK_INT(status, LH_EINPUT);
    CHECK(t == NULL);
    CHECK_HAS(err.text, why);
    CHECK_HAS(err.text, "t.yaml:");
    if (status == LH_OK)
        lh_topology_free(t);
}

static void topologies(void)
{
    static const char *const names[] = {
        "nsfnet",   "nsfnet-rounded", "cost239",   "usnet",
        "nobel-us", "nobel-eu",       "germany50", "jpn48"};
    static const uint32_t nodes[] = {14, 14, 11, 24, 14, 28, 50, 48};
    static const uint32_t cables[] = {22, 22, 26, 43, 21, 41, 88, 82};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        lh_topology *t = NULL;
        lh_error err = {0};
        snprintf(path, sizeof path, "%s/../../data/topologies/%s.yaml",
                 TEST_DATA, names[i]);
        CHECK_OK(lh_topology_read(path, &t, &err), err);
        if (!t)
            continue;
        CHECK_STR(lh_topology_name(t), names[i]);
        CHECK_INT(lh_topology_n_nodes(t), nodes[i]);
        CHECK_INT(lh_topology_n_cables(t), cables[i]);
        int64_t km = 0;
        for (uint32_t c = 0; c < lh_topology_n_cables(t); c++)
            km += lhi_topology_cable(t, c)->length_m / 1000;
        if (i == 0)
            CHECK_INT(km, 21300);
        lh_topology_free(t);
    }
}

/* A graph in the node-link form of NetworkX: as many nodes and links, and the
 * sum of lengths, as in the file. */
static void node_link(void)
{
    lh_topology *t = NULL;
    lh_error err = {0};
    int64_t m = 0;
    CHECK_OK(lh_topology_read(TEST_DATA "/optical/networkx/rnp-brazil.json", &t,
                              &err),
             err);
    if (t) {
        CHECK_INT(lh_topology_n_nodes(t), 10);
        CHECK_INT(lh_topology_n_cables(t), 12);
        for (uint32_t c = 0; c < lh_topology_n_cables(t); c++)
            m += lhi_topology_cable(t, c)->length_m;
        CHECK_INT(m, 12596000);
    }
    lh_topology_free(t);
    refused_topology("{\"directed\": true, \"nodes\": [], \"links\": []}",
                     "save the undirected graph");
    refused_topology("{\"directed\": false, \"nodes\": [{\"id\": 1}, "
                     "{\"id\": 2, \"lat\": 3}],\n\"edges\": "
                     "[{\"source\": 1, \"target\": 2}]}",
                     "t.yaml:2: edges[0]: key 'distance' is missing");
    refused_topology("{\"directed\": false, \"nodes\": [{\"id\": 1}, "
                     "{\"id\": 2}]}",
                     "links");
    refused_topology("{\"directed\": false, \"nodes\": [{\"id\": 1}, "
                     "{\"id\": 2}], \"links\": [{\"source\": 1, "
                     "\"target\": 1, \"distance\": 3}]}",
                     "from node 1 to itself");
}

static void bad_topologies(void)
{
    refused_topology("nodes: [{id: 1}]\nlinks: []\n", "1 nodes; a topology");
    refused_topology("nodes: [{id: 1}, {id: 2}]\nlinks: []\n", "0 links");
    refused_topology("nodes: [{id: 1}, {id: 1}]\nlinks: []\n",
                     "two nodes have the id 1");
    refused_topology("nodes: [{id: 1}, {id: 2}]\n"
                     "links: [{a: 1, b: 3, km: 5}]\n",
                     "t.yaml:2: links[0].b: there is no node 3");
    refused_topology("nodes: [{id: 1}, {id: 2}]\n"
                     "links: [{a: 1, b: 1, km: 5}]\n",
                     "from node 1 to itself");
    refused_topology("nodes: [{id: 1}, {id: 2}]\n"
                     "links: [{a: 1, b: 2, km: -5}]\n",
                     "links[0].km");
    refused_topology("nodes: [{id: 1}, {id: 2}]\n"
                     "links: [{a: 1, b: 2, km: 0}]\n",
                     "links[0].km");
    refused_topology("nodes: [{id: 1}, {id: 2}]\n"
                     "links: [{a: 1, b: 2, km: 0.0009}]\n",
                     "t.yaml:2: links[0].km");
    refused_topology("nodes: [{id: 1}, {id: 2}]\n"
                     "links: [{a: 1, b: 2, km: .nan}]\n",
                     "links[0].km");
    refused_topology("nodes: [{id: 1}, {id: 2}, {id: 7}]\n"
                     "links: [{a: 1, b: 2, km: 5}]\n",
                     "no links lead from node 1 to node 7");
    refused_topology("nodes: [{id: 1}, {id: 2}]\nunit: miles\n"
                     "links: [{a: 1, b: 2, km: 5}]\n",
                     "unit");
    refused_topology("nodes: [{id: 1}, {id: 2, lenght: 3}]\n"
                     "links: [{a: 1, b: 2, km: 5}]\n",
                     "lenght");
}

static void refused(const char *text, const char *why)
{
    lh_scenario *s = NULL;
    lh_error err = {0};
    lh_status status =
        lh_scenario_parse(text, strlen(text), "s.yaml", &s, &err);
    CHECK_MSG(status != LH_OK, "not refused: %s", text);
    CHECK(s == NULL);
    CHECK_HAS(err.text, why);
    CHECK_HAS(err.text, "s.yaml");
    lh_scenario_free(s);
}

static void bad_scenarios(void)
{
    refused("longhaul: optical/2\n", "optical");
    refused(NETWORK POLICIES, "job");
    refused(NETWORK JOB, "policies");
    refused(NETWORK JOB "policies: {}\n", "0 policies");
    refused(NETWORK JOB "policies: {best: {}}\n",
            "is not the name of a policy");
    refused(NETWORK JOB "policies: {ksp-ff: {request_slots: 81}}\n",
            "request_slots");
    refused(NETWORK JOB "policies: {ksp-ff: {guard: 0.1}}\n",
            "guard: is an option of the policy cba only");
    refused(NETWORK JOB "policies: {cba: {contiguity: half}}\n", "contiguity");
    refused(NETWORK JOB "policies: {cba: {label_factor: 0.5}}\n",
            "label_factor");
    refused(NETWORK JOB POLICIES "slots: 80\nrequest_slots: 81\n",
            "request_slots");
    refused(NETWORK JOB POLICIES
            "background: {erlang: 1000000, holding_s: 0.000001}\n",
            "between requests is 0.001 ns; it must be at least 1000 ns");
    refused(NETWORK JOB POLICIES "background: {erlang: 5, slots_max: 81}\n",
            "slots_max");
    refused(NETWORK JOB POLICIES
            "background: {erlang: 5, slots_min: 9, slots_max: 8}\n",
            "slots_max");
    refused(NETWORK JOB POLICIES "background: {erlang: -1}\n", "erlang");
    refused(NETWORK JOB POLICIES
            "background: {erlang: 1, gbps_min: 2, gbps_max: 3, slots_max: 2}\n",
            "cannot be combined with slots_min");
    refused(NETWORK JOB POLICIES "background: {erlang: 1, gbps_max: 3}\n",
            "gbps_min");
    refused(NETWORK JOB POLICIES "guard_slots: 79\nrequest_slots: 2\n",
            "request_slots");
    refused(NETWORK JOB POLICIES "seeds: []\n", "seeds");
    refused(NETWORK JOB POLICIES "seeds: [-1]\n", "seeds[0]");
    refused(NETWORK JOB POLICIES "slot: 3\n", "slot");
    refused(NETWORK JOB POLICIES "gbps_per_slot: 75\nmodulation: adaptive\n",
            "cannot be combined with gbps_per_slot");
    refused(NETWORK JOB POLICIES
            "modulation: [{up_to_km: 5, gbps: 3}, {up_to_km: 9, gbps: 1}]\n",
            "must serve any length");
    refused(NETWORK JOB POLICIES "modulation: [{up_to_km: 5, gbps: 3}, "
                                 "{up_to_km: 4, gbps: 2}, {gbps: 1}]\n",
            "ascending order of up_to_km");
    refused(NETWORK POLICIES
            "job: {preset: 8b, stages: 2, placement: [1, 9], schedule: gpipe,"
            " microbatches: 4}\n",
            "the topology has no node 9");
    refused(NETWORK POLICIES
            "job: {preset: 8b, stages: 2, placement: [1], schedule: gpipe,"
            " microbatches: 4}\n",
            "1 nodes for 2 stages");
    refused(NETWORK POLICIES
            "job: {preset: 8b, stages: 2, schedule: gpipe, microbatches: 4}\n",
            "requires the nodes of the stages");
    refused(NETWORK POLICIES "job: {preset: 8b, stages: 2, datacenters: 3, "
                             "schedule: gpipe, microbatches: 4}\n",
            "3 datacenters for 2 stages");
    refused(NETWORK POLICIES "job: {preset: 8b, stages: 5, datacenters: 4, "
                             "schedule: gpipe, microbatches: 4}\n",
            "4 datacenters, but the topology has 3");
    refused(NETWORK POLICIES "job: {preset: 8b, stages: 2, datacenters: 2, "
                             "schedule: best, microbatches: 4}\n",
            "unknown method 'best'; known: gpipe, 1f1b, ");
    refused(NETWORK POLICIES "job: {stages: 2, datacenters: 2, schedule: "
                             "gpipe, microbatches: 4}\n",
            "forward_ns");
    refused(NETWORK JOB POLICIES "jobs: []\n", "give one of job, jobs");
    refused(NETWORK POLICIES "jobs: []\n", "0 jobs");
    refused(NETWORK POLICIES "plan: nowhere.json\n", "nowhere.json");
    refused("longhaul: optical/1\ntopology: nowhere.yaml\n" JOB POLICIES,
            "nowhere.yaml");
}

static lh_scenario *scenario(const char *text)
{
    lh_scenario *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_scenario_parse(text, strlen(text), TEST_DATA "/optical/s.yaml",
                               &s, &err),
             err);
    return s;
}

static lh_optical *run_scenario(const char *text, uint32_t threads)
{
    lh_scenario *s = scenario(text);
    lh_optical *o = NULL;
    lh_error err = {0};
    lh_optical_options options = {.size = sizeof options, .threads = threads};
    if (s)
        CHECK_OK(lh_optical_run_all(s, &options, &o, &err), err);
    lh_scenario_free(s);
    return o;
}

static void same_results(const lh_optical *a, const lh_optical *b)
{
    CHECK_INT(a->n_policies, b->n_policies);
    for (uint32_t p = 0; p < a->n_policies; p++) {
        const lh_optical_policy *x = &a->policies[p], *y = &b->policies[p];
        CHECK(x->iteration_s == y->iteration_s);
        CHECK(x->iteration_s_sd == y->iteration_s_sd);
        CHECK(x->slots_held == y->slots_held);
        CHECK(x->collateral == y->collateral);
        for (uint32_t i = 0; i < x->n_runs; i++)
            for (uint32_t j = 0; j < x->runs[i].n_jobs; j++) {
                const lh_optical_job *k = &x->runs[i].jobs[j];
                const lh_optical_job *l = &y->runs[i].jobs[j];
                CHECK(memcmp(k->iteration_ns, l->iteration_ns,
                             k->n_iterations * sizeof *k->iteration_ns) == 0);
                CHECK(memcmp(k->labels, l->labels,
                             k->n_iterations * sizeof *k->labels) == 0);
            }
    }
}

#define TWO_JOBS                                                               \
    "longhaul: optical/1\n"                                                    \
    "topology: ../../../data/topologies/nsfnet.yaml\n"                         \
    "modulation: adaptive\n"                                                   \
    "jobs:\n"                                                                  \
    "- {preset: 8b, stages: 8, datacenters: 6, schedule: 1f1b,"                \
    " microbatches: 8}\n"                                                      \
    "- {preset: 70b, stages: 4, datacenters: 4, schedule: zb-h1,"              \
    " microbatches: 6}\n"                                                      \
    "background: {erlang: 150}\nrequest_slots: 4\niterations: 3\n"             \
    "policies:\n  sd-ff:\n  ksp-ff: {ladder: true}\n  cba: {}\n"               \
    "  slack: {ask_late: true, stage_order: true}\n"                           \
    "  critical: {ask_late: true, schedule: greedy}\n"                         \
    "  filled: {policy: critical, ask_late: true, schedule: zb-h2, "           \
    "fill_idle: true}\n"

static void threads(void)
{
    lh_optical *one = run_scenario(TWO_JOBS, 1);
    for (uint32_t n = 2; one && n <= 7; n += 5) {
        lh_optical *many = run_scenario(TWO_JOBS, n);
        if (many)
            same_results(one, many);
        lh_optical_free(many);
    }
    for (uint32_t p = 0; one && p < one->n_policies; p++)
        for (uint32_t i = 0; i < one->policies[p].n_runs; i++) {
            const lh_optical_run *run = &one->policies[p].runs[i];
            CHECK_INT(run->n_jobs, 2);
            CHECK(run->background > 0);
            for (uint32_t j = 0; j < 2; j++)
                for (uint32_t k = 0; k < run->jobs[j].n_iterations; k++)
                    CHECK(run->jobs[j].iteration_ns[k] >=
                          run->jobs[j].bound_ns);
        }
    lh_optical_free(one);
}

/* Two distant jobs do not affect each other. */
static void jobs_apart(void)
{
    static const char network[] =
        "longhaul: optical/1\ntopology: {nodes: [{id: 1}, {id: 2}, {id: 3}, "
        "{id: 4}], links: [{a: 1, b: 2, km: 1350}, {a: 2, b: 3, km: 90000}, "
        "{a: 3, b: 4, km: 1350}]}\npolicies: {cba: {}}\nseeds: [1]\n";
    static const char job[] = "{preset: 8b, stages: 2, placement: [%s], "
                              "schedule: gpipe, microbatches: 2}";
    char a[256], b[256], text[1024];
    snprintf(a, sizeof a, job, "1, 2");
    snprintf(b, sizeof b, job, "4, 3");
    snprintf(text, sizeof text, "%sjobs: [%s, %s]\n", network, a, b);
    lh_optical *o = run_scenario(text, 1);
    for (uint32_t j = 0; o && j < 2; j++) {
        const lh_optical_job *x = &o->policies[0].runs[0].jobs[j];
        CHECK_INT(x->iteration_ns[0], 183432464);
        CHECK_INT(x->iteration_ns[1], 129549674);
        CHECK_INT(x->iteration_ns[2], 143866232);
    }
    lh_optical_free(o);
}

/* On one path the slots of a longer route carry less: 1350 km is QPSK. */
static void modulation(void)
{
    static const char text[] =
        "longhaul: optical/1\ntopology: {nodes: [{id: 1}, {id: 2}], links: "
        "[{a: 1, b: 2, km: 1350}]}\nmodulation: adaptive\nseeds: [1]\n"
        "job: {forward_ns: 10, backward_ns: 20, message_bits: 1000000, "
        "stages: 2, placement: [1, 2], schedule: gpipe, microbatches: 1}\n"
        "policies: {ksp-ff: {}}\n";
    lh_optical *o = run_scenario(text, 1);
    if (o)
        CHECK_INT(o->policies[0].runs[0].jobs[0].iteration_ns[0],
                  60 + 2 * (1350 * 5000 + 1000000 / 50));
    lh_optical_free(o);
}

#define BY_LOAD(LINKS, REST)                                                   \
    "longhaul: optical/1\ntopology: {nodes: [{id: 1}, {id: 2}], links: "       \
    "[" LINKS "]}\nmodulation: load_gsnr\nseeds: [1]\niterations: 2\n" REST
#define SMALL_JOB                                                              \
    "{forward_ns: 10, backward_ns: 20, message_bits: 1000000, stages: 2, "     \
    "placement: [1, 2], schedule: gpipe, microbatches: 1}\n"

/* Returns the time of the warm-up iteration of the only job. */
static int64_t first_iteration(const char *text)
{
    lh_optical *o = run_scenario(text, 1);
    int64_t ns = o ? o->policies[0].runs[0].jobs[0].iteration_ns[0] : 0;
    lh_optical_free(o);
    return ns;
}

/* Rates by the GSNR under the current load: alone, a circuit of two slots has
 * 16QAM on 100 km, QPSK on 5000 km and BPSK on 8000 km; on 16000 km no format
 * reaches. */
static void modulation_by_load(void)
{
    static const char *const alone[] = {
        BY_LOAD("{a: 1, b: 2, km: 100}",
                "job: " SMALL_JOB "policies: {ksp-ff: {}}\n"),
        BY_LOAD("{a: 1, b: 2, km: 5000}",
                "job: " SMALL_JOB "policies: {cba: {}}\n"),
        BY_LOAD("{a: 1, b: 2, km: 8000}",
                "job: " SMALL_JOB "policies: {sd-ff: {}}\n")};
    static const int64_t km[] = {100, 5000, 8000}, gbps[] = {50, 25, 12};
    for (int i = 0; i < 3; i++)
        CHECK_INT(first_iteration(alone[i]),
                  60 + 2 * (km[i] * 5000 +
                            (i < 2 ? 1000000 / (2 * gbps[i]) : 40000)));
    lh_scenario *s =
        scenario(BY_LOAD("{a: 1, b: 2, km: 16000}",
                         "job: " SMALL_JOB "policies: {ksp-ff: {}}\n"));
    lh_optical *o = NULL;
    lh_error err = {0};
    if (s)
        CHECK_INT(lh_optical_run_all(s, NULL, &o, &err), LH_EINFEASIBLE);
    CHECK_HAS(err.text, "no modulation format reaches");
    lh_scenario_free(s);
    /* A circuit alone has 16QAM on 1300 km; between other circuits it has QPSK,
     * or is refused and repeated after 5 ms. */
#define ON_1300_KM(ERLANG)                                                     \
    BY_LOAD("{a: 1, b: 2, km: 1300}",                                          \
            "job: " SMALL_JOB "background: {erlang: " ERLANG                   \
            ", slots_min: 1, slots_max: 1}\npolicies: {ksp-ff: {}}\n")
    CHECK_INT(first_iteration(ON_1300_KM("0")), 60 + 2 * (6500000 + 10000));
    CHECK_INT((first_iteration(ON_1300_KM("40")) - 60 - 2 * 6500000) % 5000000,
              2 * 20000);
    refused(BY_LOAD("{a: 1, b: 2, km: 100}", "gbps_per_slot: 50\n"),
            "cannot be combined with gbps_per_slot");
    refused(BY_LOAD("{a: 1, b: 2, km: 100}",
                    "jobs:\n  - " SMALL_JOB
                    "  - {priority: 3, forward_ns: 10, backward_ns: 20, "
                    "message_bits: 1000000, stages: 2, placement: [1, 2], "
                    "schedule: gpipe, microbatches: 1}\n"
                    "policies: {ksp-ff: {}}\n"),
            "give all jobs the same priority");
    s = NULL;
    static const char gnpy[] =
        "longhaul: optical/1\ntopology: {gnpy: {network: network.json, "
        "equipment: equipment.json}}\nmodulation: load_gsnr\n"
        "job: " SMALL_JOB "policies: {ksp-ff: {}}\n";
    CHECK_INT(lh_scenario_parse(gnpy, sizeof gnpy - 1,
                                TEST_DATA "/optical/gnpy/s.yaml", &s, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, "s.yaml:3: modulation: assumes lines of standard");
}

/* A custom pipeline instead of a chain: the same times. */
static void pipelines(void)
{
    static const char pipeline[] =
        "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 4\ndevices: 2\n"
        "backward: joint\nchunks:\n"
        "- {device: 0, F: 10000000, D: 17700000, W: 0}\n"
        "- {device: 1, F: 10000000, D: 17700000, W: 0}\n";
    static const char path[] = "optical-pipeline.tmp.yaml";
    lh_error err = {0};
    CHECK_OK(lh_file_write(path, pipeline, strlen(pipeline), &err), err);
    char text[1024];
    int64_t ns[2] = {0};
    for (int i = 0; i < 2; i++) {
        lh_scenario *s = NULL;
        lh_optical *o = NULL;
        snprintf(text, sizeof text, NETWORK POLICIES "%s",
                 i == 0 ? JOB
                        : "job: {pipeline: optical-pipeline.tmp.yaml, "
                          "message_bits: 4294967296, placement: [1, 3], "
                          "schedule: 1f1b}\n");
        CHECK_OK(lh_scenario_parse(text, strlen(text), "s.yaml", &s, &err),
                 err);
        if (s)
            CHECK_OK(lh_optical_run_all(s, NULL, &o, &err), err);
        if (o)
            ns[i] = o->policies[0].runs[0].jobs[0].iteration_ns[3];
        lh_optical_free(o);
        lh_scenario_free(s);
    }
    remove(path);
    CHECK(ns[0] > 0);
    CHECK_INT(ns[1], ns[0]);
}

/* A plan: its schedule, times and datacenters, messages of all replicas. */
static void check_plan(const lh_plan *plan, const char *text)
{
    lh_scenario *s = NULL;
    lh_optical *o = NULL;
    lh_error err = {0};
    CHECK_OK(lh_scenario_parse(text, strlen(text), "s.yaml", &s, &err), err);
    if (!s)
        return;
    const lh_layout *layout = &plan->best.layout;
    CHECK_INT(s->jobs[0].chain.bits,
              8 * lhi_cost_message_bytes(plan->job, layout) * layout->data);
    CHECK_OK(lh_optical_run_all(s, NULL, &o, &err), err);
    for (uint32_t i = 0; o && i < 2; i++) {
        const lh_optical_job *job = &o->policies[0].runs[i].jobs[0];
        CHECK_INT(job->n_devices, lh_pipeline_n_devices(plan->pipeline));
        for (uint32_t d = 1; d < job->n_devices; d++)
            CHECK_INT(job->sites[d] == job->sites[0],
                      lh_pipeline_device_site(plan->pipeline, d) ==
                          lh_pipeline_device_site(plan->pipeline, 0));
        for (uint32_t k = 0; k < job->n_iterations; k++)
            CHECK(job->iteration_ns[k] >= job->bound_ns);
        CHECK(job->requested[0] > 0);
    }
    lh_optical_free(o);
    lh_scenario_free(s);
}

static void plans(void)
{
    static const char path[] = "optical-plan.tmp.json";
    /* The layout is fixed except for the schedule, because planning is not
     * under test. */
    lh_job *job = job_with(
        JOB_70B, "layout: {tensor: 8, context: 1, pipeline: 4, data: 8,\n"
                 "         micro_batch: 1, chunks_per_device: 1,\n"
                 "         outermost: pipeline}\n");
    lh_plan *plan = NULL;
    char *text = NULL, scenario_text[1024];
    size_t len = 0;
    lh_error err = {0};
    if (job)
        CHECK_OK(lh_plan_make(job, NULL, &plan, &err), err);
    if (plan)
        CHECK_OK(lh_plan_format(plan, &text, &len, &err), err);
    if (text) {
        CHECK_OK(lh_file_write(path, text, len, &err), err);
        snprintf(scenario_text, sizeof scenario_text,
                 "%splan: %s\nseeds: [1, 2]\n", NETWORK POLICIES, path);
        check_plan(plan, scenario_text);
        snprintf(scenario_text, sizeof scenario_text,
                 "%sjob: {plan: %s, schedule: 1f1b, sites: {nowhere: 1}}\n",
                 NETWORK POLICIES, path);
        refused(scenario_text, "nowhere");
        remove(path);
    }
    lh_text_free(text);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* A plan with a replica in each of two datacenters: with circuits of the rate
 * that a stage has on the plan's link, and as long a path, every iteration
 * takes the plan's time. Faster circuits shorten it. */
static void replicas(void)
{
    static const char path[] = "optical-replicas.tmp.json";
    lh_job *job = job_with(
        JOB_TWO_SITES,
        "training: {global_batch: 32, sequence: 4096, zero: 1}\n"
        "layout: {tensor: 4, context: 1, pipeline: 2, data: 2, micro_batch: "
        "1,\n"
        "         chunks_per_device: 1, outermost: data, schedule: 1f1b}\n");
    lh_plan *plan = NULL;
    char *text = NULL;
    size_t len = 0;
    lh_error err = {0};
    if (job)
        CHECK_OK(lh_plan_make(job, NULL, &plan, &err), err);
    if (plan)
        CHECK_OK(lh_plan_format(plan, &text, &len, &err), err);
    if (text)
        CHECK_OK(lh_file_write(path, text, len, &err), err);
    for (int slots = 4; text && slots <= 8; slots += 4) {
        char scenario_text[1024];
        snprintf(scenario_text, sizeof scenario_text,
                 "longhaul: optical/1\n"
                 "topology: {nodes: [{id: 1}, {id: 2}], "
                 "links: [{a: 1, b: 2, km: 4000}]}\n"
                 "gbps_per_slot: 50\nrequest_slots: %d\n" POLICIES
                 "job: {plan: %s, sites: {west: 2, east: 1}}\nseeds: [1]\n",
                 slots, path);
        lh_scenario *s = NULL;
        lh_optical *o = NULL;
        CHECK_OK(lh_scenario_parse(scenario_text, strlen(scenario_text),
                                   "s.yaml", &s, &err),
                 err);
        if (s)
            CHECK_OK(lh_optical_run_all(s, NULL, &o, &err), err);
        for (uint32_t k = 0; o && k < 3; k++) {
            const lh_optical_job *run = &o->policies[0].runs[0].jobs[0];
            if (slots == 4)
                CHECK_INT(run->iteration_ns[k], plan->best.iteration_ns);
            else
                CHECK(run->iteration_ns[k] < plan->best.iteration_ns);
            /* Two stages, two directions, a gather and a reduction. */
            CHECK_INT(run->requested[k], 8);
        }
        lh_optical_free(o);
        lh_scenario_free(s);
    }
    if (text) {
        char scenario_text[1024];
        snprintf(scenario_text, sizeof scenario_text,
                 NETWORK POLICIES "job: {plan: %s, placement: [1, 1]}\n", path);
        refused(scenario_text, "give sites: {DATACENTER: node, ...} instead");
        snprintf(scenario_text, sizeof scenario_text,
                 NETWORK POLICIES
                 "job: {plan: %s, sites: {west: 1, east: 1}}\n",
                 path);
        refused(scenario_text, "so they need different nodes");
        remove(path);
    }
    lh_text_free(text);
    lh_plan_free(plan);
    lh_job_free(job);
}

static void page(void)
{
    lh_scenario *s = scenario(TWO_JOBS);
    lh_optical *o = NULL;
    lh_error err = {0};
    char *text = NULL;
    size_t len = 0;
    if (!s)
        return;
    CHECK_OK(lh_optical_run_all(s, NULL, &o, &err), err);
    if (o)
        CHECK_OK(lh_optical_html(s, o, &text, &len, &err), err);
    if (text) {
        CHECK_INT(len, strlen(text));
        CHECK_HAS(text, "Occupied share of every fibre");
        CHECK_HAS(text, "critical");
        CHECK(strstr(text, "http:") == NULL && strstr(text, "https:") == NULL);
        CHECK(strstr(text, "nan") == NULL);
    }
    lh_text_free(text);
    lh_optical_free(o);
    lh_scenario_free(s);
}

/* Student's t: 12.706 for two runs, 2.776 for five, 1.984 for 101. */
static void half_widths(void)
{
    CHECK_NEAR(lh_optical_half_width(1, 1), 0, 0);
    CHECK_NEAR(lh_optical_half_width(1, 2), 12.706, 1e-3);
    CHECK_NEAR(lh_optical_half_width(1, 5), 2.776 / 2, 1e-3);
    CHECK_NEAR(lh_optical_half_width(1, 101), 0.19840, 1e-4);
}

static bool stop_at_once(void *context, uint32_t done, uint32_t total)
{
    (void)context;
    (void)done;
    (void)total;
    return true;
}

static void stopped(void)
{
    lh_scenario *s = scenario(TWO_JOBS);
    lh_optical *o = NULL;
    lh_error err = {0};
    lh_optical_options options = {.size = sizeof options,
                                  .progress = stop_at_once};
    if (s)
        CHECK_INT(lh_optical_run_all(s, &options, &o, &err), LH_ECANCELED);
    CHECK(o == NULL);
    lh_scenario_free(s);
}

int main(void)
{
    RUN(topologies);
    RUN(node_link);
    RUN(bad_topologies);
    RUN(bad_scenarios);
    RUN(threads);
    RUN(jobs_apart);
    RUN(modulation);
    RUN(modulation_by_load);
    RUN(pipelines);
    RUN(plans);
    RUN(replicas);
    RUN(page);
    RUN(half_widths);
    RUN(stopped);
    return test_summary();
}

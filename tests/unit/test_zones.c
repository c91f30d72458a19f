/* SPDX-License-Identifier: Apache-2.0 */
/* Zones of datacenters: read, written, rejected; and traffic over the network
 * within a node, a zone, a datacenter and between datacenters, by hand. */
#include "jobs.h"
#include "test_job.h"

#include "model/all_to_all.h"
#include "model/groups.h"
#include "planner/layout/traffic.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/plan.h>

/* Two datacenters with two zones of two nodes with eight H100s. Alone a GPU has
 * 50 GB/s to other zones and 25 to other nodes; all sixteen in a zone have 200
 * to the other. */
#define FOUR_ZONES                                                             \
    "  fabric: {gbps: 400, latency_us: 8, oversubscription: 2}\n"              \
    "  zone_link: {gbps: 400, latency_us: 20, oversubscription: 4}\n" SITES
#define SITES                                                                  \
    "  datacenters:\n"                                                         \
    "   - {name: west, zones: [{name: a, nodes: 2}, {name: b, nodes: 2}]}\n"   \
    "   - {name: east, zones: [{name: a, nodes: 2}, {name: b, nodes: 2}]}\n"   \
    "  links: [{between: [west, east], latency_ms: 5, gbps: 400}]\n"

static const double fabric = 0.985 * 25; /* bytes per ns */

static lh_job *four_zones(void)
{
    return job_with(JOB_70B, FOUR_ZONES "training: {global_batch: 512, "
                                        "sequence: 8192, zero: 1}\n");
}

/* --- file ----------------------------------------------------------------- */

static void zones_are_read_and_written(void)
{
    lh_job *job = four_zones(), *again;
    lh_error err;
    char *text, *second;

    CHECK_INT(job->n_datacenters, 4);
    CHECK_STR(job->datacenters[1].name, "west/b");
    CHECK_STR(job->datacenters[2].zone_of, "east");
    CHECK_INT(job->datacenters[2].gpus, 16);
    CHECK_INT(job->n_gpus, 64);
    CHECK_INT(job->n_nodes, 8);
    /* Half the fabric; all GPUs in a zone; the link between all zones. */
    CHECK_NEAR(job->datacenters[0].fabric.bytes_per_s, 25e9, 1);
    CHECK_NEAR(job->wans[0 * 4 + 1].gbps, 6400, 1e-9);
    CHECK_NEAR(job->wans[0 * 4 + 1].oversubscription, 4, 0);
    CHECK_INT(job->wans[3 * 4 + 2].latency_ns, 20000);
    for (int a = 0; a < 2; a++)
        for (int b = 2; b < 4; b++) {
            CHECK_INT(job->wans[a * 4 + b].latency_ns, 5000000);
            CHECK_NEAR(job->wans[b * 4 + a].gbps, 400, 1e-9);
        }
    CHECK_OK(lh_job_format(job, &text, NULL, &err), err);
    CHECK_HAS(text, "\"zones\"");
    again = parse(text, &err);
    CHECK_OK(again ? LH_OK : LH_EINPUT, err);
    CHECK_OK(lh_job_format(again, &second, NULL, &err), err);
    CHECK_STR(second, text);
    lh_text_free(text);
    lh_text_free(second);
    lh_job_free(job);
    lh_job_free(again);
}

#define ZONED(cluster)                                                         \
    HEAD TRAINING "cluster:\n  gpu: a100-80g\n  gpus_per_node: 4\n"            \
                  "  node_link: {gbps: 800, latency_us: 2}\n" cluster

static void what_says_nothing_is_refused(void)
{
    const char *const fabric_text = "  fabric: {gbps: 100, latency_us: 7}\n";
    char text[1024];
    static const struct {
        const char *cluster, *says;
    } bad[] = {
        {"  datacenters: [{name: a, nodes: 2, zone_link: {gbps: 1, "
         "latency_us: 1}}]\n",
         "has no zones to connect"},
        {"  zone_link: {gbps: 1, latency_us: 1}\n"
         "  datacenters: [{name: a, nodes: 2}]\n",
         "no datacenter has zones"},
        {"  datacenters: [{name: a, zones: [{name: x, nodes: 1}, "
         "{name: y, nodes: 1}]}]\n",
         "'zone_link' is required"},
        {"  zone_link: {gbps: 1, latency_us: 1}\n"
         "  datacenters: [{name: a, zones: [{name: x, nodes: 1}]}]\n",
         "1 zones; name from 2"},
        {"  zone_link: {gbps: 1, latency_us: 1}\n"
         "  datacenters: [{name: a, zones: [{name: x, nodes: 1}, "
         "{name: x, nodes: 1}]}]\n",
         "zone 'x' appears twice"},
        {"  zone_link: {gbps: 1, latency_us: 1}\n"
         "  datacenters: [{name: a, nodes: 3, zones: [{name: x, nodes: 1}, "
         "{name: y, nodes: 1}]}]\n",
         "the zones have 2 in total"},
        {"  zone_link: {gbps: 1, latency_us: 1, oversubscription: 0.5}\n"
         "  datacenters: [{name: a, zones: [{name: x, nodes: 1}, "
         "{name: y, nodes: 1}]}]\n",
         "oversubscription"},
        {"  zone_link: {gbps: 1, latency_us: 1}\n"
         "  datacenters: [{name: a, zones: [{name: x, nodes: 1}, "
         "{name: y, nodes: 1}]}, {name: a/x, nodes: 1}]\n"
         "  links: [{between: [a, a/x], latency_ms: 1, gbps: 1}]\n",
         "the name of both a datacenter and a zone"},
        {"  zone_link: {gbps: 1, latency_us: 1}\n"
         "  datacenters: [{name: a, zone_link: {gbps: 2, latency_us: 1}, "
         "zones: [{name: x, nodes: 1}, {name: y, nodes: 1}]}, "
         "{name: b, nodes: 1}]\n"
         "  links: [{between: [a, b], latency_ms: 1, gbps: 1}]\n",
         "every datacenter with zones sets its own 'zone_link'"},
        {"  datacenters: [{name: a, nodes: 2, fabric: {gbps: 1, latency_us: "
         "1}}]\n",
         "every datacenter sets its own 'fabric'"},
        {"  datacenters: [{name: a, nodes: 2, node_link: {gbps: 1, "
         "latency_us: 1}}]\n",
         "every datacenter sets its own 'node_link'"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, "%s%s%s", ZONED(""), fabric_text,
                 bad[i].cluster);
        refuse(text, bad[i].says);
    }
    refuse(HEAD TRAINING "cluster:\n  gpu: a100-80g\n  gpus_per_node: 4\n"
                         "  node_link: {gbps: 8, latency_us: 2, "
                         "oversubscription: 2}\n"
                         "  datacenters: [{name: a, nodes: 1}]\n",
           "oversubscription");
}

/* --- by hand, level by level ---------------------------------------------- */

/* Thirty-two GPUs in two zones: seven of eight on the same node, eight on the
 * other one, sixteen in the other zone, to which all sixteen send concurrently.
 */
static void all_to_all_by_hand(void)
{
    lh_job *job = four_zones();
    lh_cost_group g = {32, 8, 16, 0, 16, 0, NULL, 0};
    double transfer, latency;
    lh_error err;

    CHECK_OK(
        lhi_cost_all_to_all(job, &g, 32e6, NULL, &transfer, &latency, &err),
        err);
    CHECK_NEAR(transfer, 8e6 / fabric + 16e6 / (200.0 / 16), 1);
    CHECK_NEAR(latency, 20000, 0);
    /* Over all four: both zones in the west share the link to the east. */
    g.size = 64;
    CHECK_OK(
        lhi_cost_all_to_all(job, &g, 64e6, NULL, &transfer, &latency, &err),
        err);
    CHECK_NEAR(transfer, 8e6 / fabric + 16e6 / (200.0 / 16) + 32e6 / (50. / 32),
               1);
    CHECK_NEAR(latency, 5e6, 0);
    lh_job_free(job);
}

/* Eight replicas with eight GPUs, two in each zone: gathered within zones, then
 * half of each shard between zones, then a quarter between datacenters. */
static void data_parallelism_by_hand(void)
{
    lh_job *job = four_zones();
    const lh_cost_site sites[] = {{0, 2}, {1, 2}, {2, 2}, {3, 2}};
    lh_layout l = {.tensor = 8,
                   .context = 1,
                   .expert = 1,
                   .pipeline = 1,
                   .data = 8,
                   .micro_batch = 1,
                   .chunks_per_device = 1,
                   .sharding = LH_SHARDING_FULL};
    lh_cost_layer_range slice = {.n_layers = 1, .n_sites = 4, .sites = sites};
    lh_cost cost;
    lh_error err;
    double bytes;

    CHECK_OK(lh_cost_chunk(job, &l, &slice, NULL, &cost, &err), err);
    bytes = (double)cost.params * 2;
    CHECK_NEAR((double)cost.all_gather_ns,
               bytes / 2 / fabric + bytes / 4 / (200.0 / 16) +
                   bytes / 8 / (50.0 / 32),
               4);
    CHECK_INT(cost.data_latency_ns, 8000 + 20000 + 5000000);
    /* Within one datacenter: half of each shard between its zones. */
    slice.n_sites = 2;
    l.data = 4;
    CHECK_OK(lh_cost_chunk(job, &l, &slice, NULL, &cost, &err), err);
    CHECK_NEAR((double)cost.all_gather_ns,
               bytes / 2 / fabric + bytes / 4 / (200.0 / 16), 4);
    CHECK_INT(cost.data_latency_ns, 8000 + 20000);
    lh_job_free(job);
}

static double message_ns(const lh_job *job, uint32_t from, uint32_t to,
                         uint32_t replicas, int64_t *latency)
{
    const lh_layout l = {.tensor = 8,
                         .context = 1,
                         .expert = 1,
                         .pipeline = 4,
                         .data = 2,
                         .micro_batch = 1,
                         .chunks_per_device = 1};
    lh_cost_hop hop = {from, to, 0, 8, replicas, 0, 0};
    lh_cost_message m;
    lh_error err;

    CHECK_OK(lhi_cost_hop_message(job, &l, &hop, NULL, &m, &err), err);
    *latency = m.latency_ns;
    return (double)m.transfer_ns;
}

static void messages_by_hand(void)
{
    lh_job *job = four_zones();
    const double share = 8192.0 * 8192 * 2 / 8; /* per GPU */
    int64_t latency;

    CHECK_NEAR(message_ns(job, 0, 0, 2, &latency), share / fabric, 2);
    CHECK_INT(latency, 8000);
    /* Sixteen GPUs send to the other zone, or eight, limited by their own
     * interfaces' share of the fabric. */
    CHECK_NEAR(message_ns(job, 0, 1, 2, &latency), share / (200.0 / 16), 2);
    CHECK_INT(latency, 20000);
    CHECK_NEAR(message_ns(job, 0, 1, 1, &latency), share / fabric, 2);
    CHECK_NEAR(message_ns(job, 1, 2, 2, &latency), share / (50.0 / 16), 2);
    CHECK_INT(latency, 5000000);
    lh_job_free(job);
}

/* --- plans ---------------------------------------------------------------- */

static bool has_link(const lh_pipeline *p, const char *name)
{
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        const char *is = lh_pipeline_link(p, i)->name;

        if (is && strcmp(is, name) == 0)
            return true;
    }
    return false;
}

/* Ranks fill zones in order; between datacenters there is one link. */
static void stages_fill_zones(void)
{
    lh_job *job = four_zones();
    lh_layout l = {.tensor = 8,
                   .context = 1,
                   .expert = 1,
                   .pipeline = 4,
                   .data = 2,
                   .micro_batch = 1,
                   .chunks_per_device = 1,
                   .outermost = LH_OUTERMOST_PIPELINE,
                   .sharding = LH_SHARDING_FULL};
    lh_pipeline *p;
    lh_error err;
    int64_t after;

    CHECK_OK(lh_plan_pipeline(job, &l, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE, &p,
                              &after, &err),
             err);
    for (uint32_t d = 0; d < 4; d++)
        CHECK_INT(lh_pipeline_device_site(p, d), d);
    CHECK(has_link(p, "west/a>west"));
    CHECK(has_link(p, "west>east"));
    CHECK(has_link(p, "east>west"));
    CHECK(has_link(p, "east/b>east"));
    lh_pipeline_free(p);
    lh_job_free(job);
}

/* A layout with experts inside zones sends no token further. */
static void experts_stay_in_zones(void)
{
    lh_job *job = job_with(JOB_70B, FOUR_ZONES "model: mixtral-8x7b\n");
    lh_layout l = {.tensor = 4,
                   .context = 1,
                   .expert = 8,
                   .pipeline = 1,
                   .data = 16,
                   .micro_batch = 1,
                   .chunks_per_device = 1,
                   .sharding = LH_SHARDING_FULL};
    const lh_cost_site all[] = {{0, 4}, {1, 4}, {2, 4}, {3, 4}};
    lh_cost_layer_range slice = {.n_layers = 1, .n_sites = 4, .sites = all};
    lh_cost_group g;
    lh_error err;

    CHECK_OK(lhi_cost_find_group(job, &l, LH_COST_EXPERT, &slice, &g, &err),
             err);
    CHECK(g.size == 8 && g.per_node == 8 && g.per_datacenter == 8);
    lh_job_free(job);
}

/* Each number of each level affects the result. */
static void every_key_changes_something(void)
{
    /* Fabric settings, and those between zones; the first row is the reference.
     */
    static const char *const networks[][2] = {
        {"latency_us: 8, oversubscription: 2",
         "gbps: 400, latency_us: 20, oversubscription: 4"},
        {"latency_us: 8, oversubscription: 4",
         "gbps: 400, latency_us: 20, oversubscription: 4"},
        {"latency_us: 8, oversubscription: 2",
         "gbps: 200, latency_us: 20, oversubscription: 4"},
        {"latency_us: 8, oversubscription: 2",
         "gbps: 400, latency_us: 40, oversubscription: 4"},
        {"latency_us: 8, oversubscription: 2",
         "gbps: 400, latency_us: 20, oversubscription: 8"},
        {"latency_us: 8, oversubscription: 2", "gbps: 400, latency_us: 20"},
    };
    const lh_cost_site sites[] = {{0, 2}, {1, 2}};
    lh_layout l = {.tensor = 8,
                   .context = 1,
                   .expert = 1,
                   .pipeline = 1,
                   .data = 4,
                   .micro_batch = 1,
                   .chunks_per_device = 1,
                   .sharding = LH_SHARDING_FULL};
    lh_cost_layer_range slice = {.n_layers = 1, .n_sites = 2, .sites = sites};
    int64_t as_given = 0;

    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        lh_job *job = job_with(JOB_70B,
                               "  fabric: {gbps: 400, %s}\n"
                               "  zone_link: {%s}\n" SITES
                               "training: {global_batch: 512, sequence: 8192, "
                               "zero: 1}\n",
                               networks[i][0], networks[i][1]);
        lh_cost cost;
        lh_error err;
        int64_t ns;

        CHECK_OK(lh_cost_chunk(job, &l, &slice, NULL, &cost, &err), err);
        ns = cost.all_gather_ns + cost.data_latency_ns;
        if (i == 0)
            as_given = ns;
        else
            CHECK_MSG(ns != as_given, "%s changes nothing, nor does %s",
                      networks[i][0], networks[i][1]);
        lh_job_free(job);
    }
}

/* Half of each replica's buffer stays in a zone's ring; for the other half two
 * rings between the datacenters send a half each. Parameters in two bytes and
 * gradients in four: three bytes per model parameter. */
static void bytes_between_datacenters_by_hand(void)
{
    static const lh_site_stages parts[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
    const lh_site_group groups[] = {{1, 1, &parts[0]},
                                    {1, 1, &parts[1]},
                                    {1, 1, &parts[2]},
                                    {1, 1, &parts[3]}};
    const lh_sites sites = {4, groups};
    const lhi_config config = {.layout = {.tensor = 1,
                                          .context = 1,
                                          .expert = 1,
                                          .pipeline = 1,
                                          .data = 4,
                                          .micro_batch = 1,
                                          .chunks_per_device = 1,
                                          .outermost = LH_OUTERMOST_DATA,
                                          .sites = &sites},
                               .placement = LH_PLACEMENT_UD,
                               .microbatches = 2};
    lh_job *job = job_with(
        JOB_SMALL, "  zone_link: {gbps: 400, latency_us: 20}\n"
                   "  datacenters:\n"
                   "    - {name: a, zones: [{name: x, nodes: 1}, {name: y, "
                   "nodes: 1}]}\n"
                   "    - {name: b, zones: [{name: x, nodes: 1}, {name: y, "
                   "nodes: 1}]}\n"
                   "  links: [{between: [a, b], latency_ms: 1, gbps: 100}]\n"
                   "training: {global_batch: 8, sequence: 1024, zero: 1}\n");
    lhi_arena *mem = lhi_arena_make(0);
    double bytes = 3 * (double)lh_model_params(job->model),
           across[2][2] = {{0}};
    const lhi_traffic *t = NULL;
    lh_error err = {0};
    uint32_t n = 0;

    CHECK_OK(lhi_traffic_of(job, &config, mem, &t, &n, &err), err);
    for (uint32_t i = 0; i < n; i++) {
        across[t[i].from / 2][t[i].to / 2] += (double)t[i].data_bytes;
        if (t[i].from / 2 == t[i].to / 2)
            CHECK_NEAR((double)t[i].data_bytes, bytes, 8);
    }
    CHECK_NEAR(across[0][1], bytes, 8);
    CHECK_NEAR(across[1][0], bytes, 8);
    CHECK_NEAR(across[0][0], 2 * bytes, 16);
    lh_job_free(job);
    lhi_arena_free(mem);
}

int main(void)
{
    RUN(zones_are_read_and_written);
    RUN(what_says_nothing_is_refused);
    RUN(all_to_all_by_hand);
    RUN(data_parallelism_by_hand);
    RUN(messages_by_hand);
    RUN(bytes_between_datacenters_by_hand);
    RUN(stages_fill_zones);
    RUN(experts_stay_in_zones);
    RUN(every_key_changes_something);
    return test_summary();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation fails in turn: the call returns LH_ENOMEM, leaks nothing and
 * leaves its output unchanged. */
#include "fail_alloc.h"
#include "network/optical/network.h"
#include "test.h"

#include <longhaul/experimental/optical.h>

static const char text[] =
    "longhaul: optical/1\n"
    "topology: {nodes: [{id: 1}, {id: 2}, {id: 3}], links: [{a: 1, b: 2, "
    "km: 100}, {a: 2, b: 3, km: 200}, {a: 1, b: 3, km: 400}]}\n"
    "modulation: adaptive\nslots: 8\niterations: 1\nseeds: [1]\n"
    "jobs:\n- {preset: 8b, stages: 3, datacenters: 2, schedule: 1f1b, "
    "microbatches: 2}\n"
    "- {preset: 8b, stages: 2, placement: [1, 3], schedule: zb-h1, "
    "microbatches: 2, priority: 1}\n"
    "- {preset: 8b, stages: 1, schedule: zb-v, microbatches: 1, "
    "data_parallel: {nodes: [1, 3], gather_bits: 1, reduce_bits: 9}}\n"
    "background: {erlang: 3}\n"
    "failures: {restore: wait, cuts: [{link: [1, 2], at_s: 0.015, "
    "repair_s: 0.3}], mtbf_s: 1, mttr_s: 0.1}\n"
    "policies: {cba: {}, critical: {ask_late: true, stage_order: true}}\n";

static lh_status go(void)
{
    lh_scenario *s = NULL;
    lh_optical *o = NULL;
    char *page = NULL, *events = NULL;
    lh_error err = {0};
    lh_optical_options options = {.size = sizeof options, .threads = 1};
    lh_status status = lh_scenario_parse(text, sizeof text - 1, "s", &s, &err);
    if (status == LH_OK)
        status = lh_optical_run_all(s, &options, &o, &err);
    if (status == LH_OK)
        status = lh_optical_html(s, o, &page, NULL, &err);
    else
        CHECK(o == NULL);
    if (status == LH_OK)
        status = lh_optical_events(s, o, &events, NULL, &err);
    lh_text_free(page);
    lh_text_free(events);
    lh_optical_free(o);
    lh_scenario_free(s);
    return status;
}

static void scenarios(void)
{
    FAIL_EACH_ALLOC(status = go());
}

static lh_status grid(void)
{
    static const char path[] = "optical-oom.tmp.yaml";
    FILE *file = fopen(path, "wb");
    lh_optical_sweep *s = NULL;
    char *csv = NULL, *page = NULL;
    lh_error err = {0};
    lh_optical_options options = {.size = sizeof options, .threads = 1};
    if (file) {
        fputs(text, file);
        fclose(file);
    }
    lh_status status = lh_optical_sweep_run(
        path, "slots=4,8;policies.cba.guard=1", &options, &s, &err);
    if (status == LH_OK)
        status = lh_optical_sweep_csv(s, &csv, NULL, &err);
    if (status == LH_OK)
        status = lh_optical_sweep_html(s, &page, NULL, &err);
    lh_text_free(csv);
    lh_text_free(page);
    lh_optical_sweep_free(s);
    remove(path);
    return status;
}

static void sweeps(void)
{
    FAIL_EACH_ALLOC(status = grid());
}

static lh_status find_routes(void)
{
    static const char small[] =
        "nodes: [{id: 1}, {id: 2}, {id: 3}]\nlinks: [{a: 1, b: 2, km: 1}, "
        "{a: 2, b: 3, km: 1}, {a: 1, b: 3, km: 1}]\n";
    lh_topology *t = NULL;
    lh_route *routes = NULL;
    uint32_t count;
    lh_error err = {0};
    lh_status status =
        lhi_topology_parse(small, sizeof small - 1, "t", &t, &err);
    if (status == LH_OK)
        status = lhi_topology_routes(t, 0, 2, 3, &routes, &count, &err);
    lh_traffic load = {.size = sizeof load,
                       .erlang = 5,
                       .holding_s = 1,
                       .slots = 4,
                       .slots_min = 1,
                       .slots_max = 2,
                       .k = 2};
    lh_traffic_result result;
    if (status == LH_OK)
        status = lh_traffic_run(t, &load, 1, 0, 50, &result, &err);
    lhi_routes_free(routes);
    lh_topology_free(t);
    return status;
}

static void routes(void)
{
    FAIL_EACH_ALLOC(status = find_routes());
}

static lh_status read_lines(void)
{
    static const char lines[] =
        "gnpy: {network: network.json, equipment: equipment.json}\n";
    lh_topology *t = NULL;
    lh_error err = {0};
    lh_status status = lhi_topology_parse(
        lines, sizeof lines - 1, TEST_DATA "/optical/gnpy/t.yaml", &t, &err);
    lh_topology_free(t);
    return status;
}

static lh_status by_gsnr(void)
{
    lh_topology *t = NULL;
    lh_traffic_result r;
    lh_error err = {0};
    lh_traffic load = {.size = sizeof load,
                       .erlang = 20,
                       .holding_s = 1,
                       .slots = 80,
                       .k = 1,
                       .gbps_min = 5,
                       .gbps_max = 9,
                       .by_gsnr = true};
    static const char links[] = "nodes: [{id: 1}, {id: 2}]\n"
                                "links: [{a: 1, b: 2, km: 100}]\n";
    lh_status status =
        lhi_topology_parse(links, sizeof links - 1, "t", &t, &err);
    if (status == LH_OK)
        status = lh_traffic_run(t, &load, 1, 0, 50, &r, &err);
    lh_topology_free(t);
    return status;
}

static void traffic(void)
{
    FAIL_EACH_ALLOC(status = by_gsnr());
}

static void gnpy(void)
{
    FAIL_EACH_ALLOC(status = read_lines());
}

int main(void)
{
    RUN(scenarios);
    RUN(sweeps);
    RUN(routes);
    RUN(traffic);
    RUN(gnpy);
    return test_summary();
}

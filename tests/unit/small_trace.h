/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of two devices in two datacenters with every kind of record, for
 * tests of charts and files. */
#ifndef SMALL_TRACE_H
#define SMALL_TRACE_H

#include <longhaul/experimental/report.h>
#include <longhaul/experimental/trace.h>

static const char *const small_sites[] = {"west", "east & <b>"};
static const char *const small_links[] = {"west-east", "east-west"};
static const lh_trace_device small_devices[] = {{0, 5, 40, "fabric of <w>"},
                                                {1, 0, LH_NO_LIMIT, NULL}};
static const lh_trace_run small_runs[] = {
    {{0, 0, 0, 1, LH_F, false}, 0, LH_NONE, 100, 200, 200, 15, 15},
    {{0, 1, 0, 1, LH_F, false}, 0, LH_NONE, 200, 300, 350, 25, 25},
    {{0, 0, 0, 1, LH_D, false}, 0, 2, 620, 720, 720, 25, 20},
    {{0, 0, 0, 2, LH_W, false}, 0, LH_NONE, 720, 770, 770, 20, 17},
    {{0, 0, 1, 2, LH_W, false}, 0, LH_NONE, 770, 820, 820, 17, 15},
    {{1, 0, 0, 1, LH_F, false}, 1, 0, 330, 430, 430, 10, 10},
    {{1, 0, 0, 1, LH_B, false}, 1, LH_NONE, 430, 570, 570, 10, 0},
    {{1, 1, 0, 1, LH_F, false}, 1, LH_NONE, 570, 670, 670, 10, 10},
};
static const lh_trace_message small_messages[] = {
    {{0, 0, 0, 1, LH_F, false},
     {1, 0, 0, 1, LH_F, false},
     0,
     1,
     0,
     200,
     200,
     200,
     310,
     330},
    {{0, 1, 0, 1, LH_F, false},
     {1, 1, 0, 1, LH_F, false},
     0,
     1,
     0,
     300,
     305,
     310,
     420,
     440},
    {{1, 0, 0, 1, LH_B, false},
     {0, 0, 0, 1, LH_D, false},
     1,
     0,
     1,
     570,
     570,
     570,
     600,
     620},
};
static const lh_trace_collective small_collectives[] = {
    {0, 0, false, 0, 0, 90, 100, 0, 0, LH_DP_ANY},
    {0, 0, true, 820, 820, 880, 890, 0, 0, LH_DP_ANY},
};
static const lh_trace small_trace = {
    .title = "a <title> & more",
    .source = "measured",
    .memory_unit = "GiB",
    .makespan_ns = 890,
    .n_devices = 2,
    .n_sites = 2,
    .n_links = 2,
    .devices = small_devices,
    .site_names = small_sites,
    .link_names = small_links,
    .n_runs = 8,
    .n_messages = 3,
    .n_collectives = 2,
    .runs = small_runs,
    .messages = small_messages,
    .collectives = small_collectives,
};

static const lh_report_segment small_path[] = {
    {LH_STEP_COLLECTIVE, 0, 0, 100}, {LH_STEP_PASS, 0, 100, 200},
    {LH_STEP_TRANSFER, 0, 200, 310}, {LH_STEP_LATENCY, 0, 310, 330},
    {LH_STEP_PASS, 5, 330, 430},     {LH_STEP_PASS, 6, 430, 570},
    {LH_STEP_TRANSFER, 2, 570, 600}, {LH_STEP_LATENCY, 2, 600, 620},
    {LH_STEP_PASS, 2, 620, 720},     {LH_STEP_PASS, 3, 720, 770},
    {LH_STEP_PASS, 4, 770, 820},     {LH_STEP_COLLECTIVE, 1, 820, 890},
};
static const char *const small_causes[] = {"link latency", "</script>"};
static const int64_t small_idle[] = {100, 390, 200, 350};
static const lh_report_analysis small_analysis = {
    .size = sizeof(lh_report_analysis),
    .n_segments = 12,
    .critical_path = small_path,
    .n_causes = 2,
    .cause_names = small_causes,
    .bubble_ns = small_idle,
};

static const double small_xs[] = {0, 0.5, 1};
static const char *const small_series[] = {"1f1b", "greedy"};
static const int64_t small_makespans[] = {100, 150, -1, 90, 100, 120};
static const lh_report_sweep small_sweep = {
    .size = sizeof(lh_report_sweep),
    .title = "transfer 1 ms",
    .x = "latency (ms)",
    .n_points = 3,
    .xs = small_xs,
    .n_series = 2,
    .series = small_series,
    .makespan_ns = small_makespans,
};

#endif

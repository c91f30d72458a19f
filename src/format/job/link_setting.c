/* SPDX-License-Identifier: Apache-2.0 */
/* The settings at a link's ends between datacenters: keys of
 * `cluster.links[]`, and of a plan's advice. */
#include "format/job/parse.h"

/* Indexed by enum value, without "not given". */
static const char *const balancings[] = {"ecmp", "spray", NULL};
static const char *const recoveries[] = {"go-back-n", "selective-repeat", NULL};
static const char *const congestions[] = {"off", "on", NULL};

enum {
    MAX_QUEUE_PAIRS = 65536,
    MOST_BLOCK = 65536,
    MOST_CHANNELS = 64,                /* MAXCHANNELS of NCCL */
    MOST_SOCKETS = 64,                 /* MAX_SOCKETS of NCCL */
    MOST_BUFFER_KIB = INT32_MAX / 1024 /* NCCL counts in 32 bits */
};

static const lhi_schema_field fec_rows[] = {
    {"data", LHI_INTEGER(lh_link_setting, fec_data), .least = 1,
     .most = MOST_BLOCK},
    {"parity", LHI_INTEGER(lh_link_setting, fec_parity), .least = 1,
     .most = MOST_BLOCK},
};
static const lhi_schema fec_table = {
    LHI_ROWS("fec", lh_link_setting, fec_rows)};

/* Rejects a window size of TCP if the setting has no TCP connections. */
static lh_status check_nccl_keys(const lhi_read_context *r, const lhi_node *map,
                                 void *it, lh_error *err)
{
    const lh_link_setting *s = it;
    const lhi_node *node = lhi_node_find(map, "tcp_window_kib");
    if (node && !s->sockets)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "requires sockets; without, NCCL uses RDMA");
    return LH_OK;
}

static const lhi_schema_field nccl_rows[] = {
    {"channels", LHI_INTEGER(lh_link_setting, channels), .least = 1,
     .most = MOST_CHANNELS},
    {"buffer_kib", LHI_NUMBER(lh_link_setting, buffer_bytes), .low = 1,
     .high = MOST_BUFFER_KIB, .scale = 1024, .when = LHI_OPTIONAL},
    {"sockets", LHI_INTEGER(lh_link_setting, sockets), .least = 1,
     .most = MOST_SOCKETS, .when = LHI_OPTIONAL},
    {"tcp_window_kib", LHI_NUMBER(lh_link_setting, tcp_window_bytes), .low = 1,
     .high = MOST_BUFFER_KIB, .scale = 1024, .when = LHI_OPTIONAL},
};
static const lhi_schema nccl_table = {
    LHI_ROWS("nccl", lh_link_setting, nccl_rows), .check = check_nccl_keys};

static const lhi_schema_field setting_rows[] = {
    {"load_balancing", LHI_ENUM(lh_link_setting, balancing), .least = 1,
     .names = balancings, .when = LHI_OPTIONAL},
    {"queue_pairs", LHI_INTEGER(lh_link_setting, queue_pairs), .least = 1,
     .most = MAX_QUEUE_PAIRS, .when = LHI_OPTIONAL},
    {"paths", LHI_INTEGER(lh_link_setting, paths), .least = 1,
     .most = MAX_QUEUE_PAIRS, .when = LHI_OPTIONAL},
    {"window_kib", LHI_NUMBER(lh_link_setting, window_bytes), .low = 1,
     .high = 1e12, .scale = 1024, .when = LHI_OPTIONAL},
    {"congestion_control", LHI_ENUM(lh_link_setting, congestion), .least = 1,
     .names = congestions, .when = LHI_OPTIONAL},
    {"queue_kib", LHI_NUMBER(lh_link_setting, queue_bytes), .low = 1,
     .high = 1e12, .scale = 1024, .when = LHI_OPTIONAL},
    {"recovery", LHI_ENUM(lh_link_setting, recovery), .least = 1,
     .names = recoveries, .when = LHI_OPTIONAL},
    {"fec", LHI_NESTED_MAP(lh_link_setting), .table = &fec_table,
     LHI_OMIT_IF(lh_link_setting, fec_data, 0)},
    {"nccl", LHI_NESTED_MAP(lh_link_setting), .table = &nccl_table,
     LHI_OMIT_IF(lh_link_setting, channels, 0)},
};

/* Rejects a key of a link setting that has no meaning without another key. */
static lh_status check_dependent_keys(const lhi_read_context *r,
                                      const lhi_node *map, void *it,
                                      lh_error *err)
{
    const lh_link_setting *s = it;
    const lhi_node *node = lhi_node_find(map, "paths");
    if (node && s->balancing != LH_BALANCING_ECMP)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "requires load_balancing: ecmp");
    node = lhi_node_find(map, "queue_pairs");
    if (node && s->balancing == LH_BALANCING_ANY && !(s->window_bytes > 0) &&
        s->congestion != LH_CONGESTION_ON &&
        s->recovery != LH_RECOVERY_GO_BACK_N)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "requires load_balancing, window_kib, "
                            "congestion_control: on or recovery: go-back-n; "
                            "set one of these, or remove it");
    node = lhi_node_find(map, "queue_kib");
    if (node && s->congestion != LH_CONGESTION_ON)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "requires congestion_control: on");
    return LH_OK;
}

const lhi_schema lhi_link_setting_schema = {
    LHI_ROWS("setting", lh_link_setting, setting_rows),
    .check = check_dependent_keys};

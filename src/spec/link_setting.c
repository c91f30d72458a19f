/* SPDX-License-Identifier: Apache-2.0 */
/* The settings at the ends of a link between datacenters: keys of
 * `cluster.links[]`, and of a plan's advice. */
#include "spec/spec.h"

/* Indexed by enum value, without "not given". */
static const char *const balancings[] = {"ecmp", "spray", NULL};
static const char *const recoveries[] = {"go-back-n", "selective-repeat", NULL};
static const char *const congestions[] = {"off", "on", NULL};

enum { MOST_QUEUE_PAIRS = 65536, MOST_BLOCK = 65536 };

static const lhi_field fec_rows[] = {
    {"data", LHI_WHOLE(lh_link_setting, fec_data), .least = 1,
     .most = MOST_BLOCK},
    {"parity", LHI_WHOLE(lh_link_setting, fec_parity), .least = 1,
     .most = MOST_BLOCK},
};
static const lhi_table fec_table = {LHI_ROWS("fec", lh_link_setting, fec_rows)};

static const lhi_field setting_rows[] = {
    {"load_balancing", LHI_NAME(lh_link_setting, balancing), .least = 1,
     .names = balancings, .when = LHI_LEFT_OUT},
    {"queue_pairs", LHI_WHOLE(lh_link_setting, queue_pairs), .least = 1,
     .most = MOST_QUEUE_PAIRS, .when = LHI_LEFT_OUT},
    {"paths", LHI_WHOLE(lh_link_setting, paths), .least = 1,
     .most = MOST_QUEUE_PAIRS, .when = LHI_LEFT_OUT},
    {"window_kib", LHI_NUMBER(lh_link_setting, window_bytes), .low = 1,
     .high = 1e12, .scale = 1024, .when = LHI_LEFT_OUT},
    {"congestion_control", LHI_NAME(lh_link_setting, congestion), .least = 1,
     .names = congestions, .when = LHI_LEFT_OUT},
    {"queue_kib", LHI_NUMBER(lh_link_setting, queue_bytes), .low = 1,
     .high = 1e12, .scale = 1024, .when = LHI_LEFT_OUT},
    {"recovery", LHI_NAME(lh_link_setting, recovery), .least = 1,
     .names = recoveries, .when = LHI_LEFT_OUT},
    {"fec", LHI_PART(lh_link_setting), .table = &fec_table,
     LHI_UNLESS(lh_link_setting, fec_data, 0)},
};

/* Rejects a key that has no meaning without another. */
static lh_status check_company(const lhi_reading *r, const lhi_node *map,
                               void *it, lh_error *err)
{
    const lh_link_setting *s = it;
    const lhi_node *node = lhi_find(map, "paths");
    if (node && s->balancing != LH_BALANCING_ECMP)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "matters with load_balancing: ecmp only");
    node = lhi_find(map, "queue_pairs");
    if (node && s->balancing == LH_BALANCING_ANY && !(s->window_bytes > 0) &&
        s->congestion != LH_CONGESTION_ON &&
        s->recovery != LH_RECOVERY_GO_BACK_N)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "matters with load_balancing, window_kib, "
                            "congestion_control: on or recovery: go-back-n "
                            "only; give one of these, or leave it out");
    node = lhi_find(map, "queue_kib");
    if (node && s->congestion != LH_CONGESTION_ON)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "matters with congestion_control: on only");
    return LH_OK;
}

const lhi_table lhi_link_setting_table = {
    LHI_ROWS("setting", lh_link_setting, setting_rows), .check = check_company};

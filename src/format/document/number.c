/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that survive a round trip, and JSON maps. */
#include "format/document/schema.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double lhi_round15(double value)
{
    /* Both conversions use the same locale, so any locale works. */
    char text[40];
    snprintf(text, sizeof text, "%.14e", value);
    return strtod(text, NULL);
}

lh_status lhi_node_get_rounded_number(const lhi_doc *doc, const lhi_node *node,
                                      double min, double max, double *out,
                                      lh_error *err)
{
    double value;
    LHI_TRY(lhi_node_get_number(doc, node, min, max, &value, err));
    *out = lhi_round15(value);
    return LH_OK;
}

lh_status lhi_node_get_time_unit(const lhi_doc *doc, const lhi_node *map,
                                 int64_t *unit_ns, lh_error *err)
{
    static const char *const names[] = {"s", "ms", "us", "ns", NULL};
    static const int64_t units[] = {1000000000, 1000000, 1000, 1};
    uint32_t unit = 0;
    const lhi_node *node = lhi_node_find(map, "time_unit");
    if (node)
        LHI_TRY(lhi_node_get_choice(doc, node, names, &unit, err));
    *unit_ns = units[unit];
    return LH_OK;
}

lh_status lhi_node_get_short_time(const lhi_doc *doc, const lhi_node *node,
                                  int64_t unit_ns, int64_t *out_ns,
                                  lh_error *err)
{
    int64_t ns;
    LHI_TRY(lhi_node_get_time(doc, node, unit_ns, &ns, err));
    if (ns > LHI_HOUR_NS)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "%.60s is out of range; at most an hour (%" PRId64
                            ") is possible",
                            node->text, LHI_HOUR_NS / unit_ns);
    *out_ns = ns;
    return LH_OK;
}

json_t *lhi_json_number(double value)
{
    if (value == floor(value) && fabs(value) < 1e15)
        return json_integer((json_int_t)value);
    return json_real(value);
}

bool lhi_json_set(json_t *map, const char *key, json_t *value)
{
    return json_object_set_new(map, key, value) == 0;
}

json_t *lhi_json_finish(json_t *map, bool ok)
{
    if (ok)
        return map;
    json_decref(map);
    return NULL;
}

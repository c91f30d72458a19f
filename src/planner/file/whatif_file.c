/* SPDX-License-Identifier: Apache-2.0 */
/* `what_if` and `sensitivity` of a plan: docs/formats/plan.md. */
#include "planner/file/plan_file.h"
#include "planner/search/objective.h"

#include <math.h>
#include <string.h>

double lhi_compute_keeping_loss(const lh_plan *plan,
                                const lh_plan_whatif_answer *answer)
{
    lh_plan_options options = {.objective = plan->objective};
    return lhi_compute_relative_gap(&options, &answer->kept, &answer->best);
}

bool lhi_range_value(const lh_job *job, const lh_plan_range *range,
                     double *value)
{
    uint32_t n = job->n_datacenters;
    bool first = true;
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++) {
            bool mine = (a == range->from && b == range->to) ||
                        (a == range->to && b == range->from);
            if (a == b || (!mine && range->from != LH_ALL_LINKS))
                continue;
            const lh_wan *wan = &job->wans[(size_t)a * n + b];
            double here = range->quantity == LH_LINK_LATENCY
                              ? (double)wan->latency_ns / 1e6
                              : wan->gbps;
            if (!first && (here < *value || here > *value))
                return false;
            *value = here;
            first = false;
        }
    return !first;
}

/* --- answers -------------------------------------------------------------- */

/* Checks whether `a` and `b` are equal with a relative tolerance of 1e-9. */
static bool is_nearly_equal(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

/* Returns as JSON the relative loss of keeping the plan rather than the best
 * one, for the what-if answer `owner`. */
static json_t *write_keeping(const void *owner, const void *context)
{
    return json_real(lhi_compute_keeping_loss(context, owner));
}

/* Checks that `keeping_costs` of a what-if answer `it` in a plan file matches
 * its iteration times of the kept and the best plan. LH_EINPUT otherwise. */
static lh_status check_keeping(const lhi_read_context *r, const lhi_node *map,
                               void *it, lh_error *err)
{
    const lhi_node *node;
    double stored;
    LHI_TRY(lhi_node_require(r->doc, map, "keeping_costs", &node, err));
    LHI_TRY(lhi_node_get_number(r->doc, node, -1, 1e300, &stored, err));
    if (is_nearly_equal(stored, lhi_compute_keeping_loss(r->context, it)))
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "does not match 'kept' and 'best'");
}

static const lhi_schema_field answer_rows[] = {
    {"links", LHI_STRING(lh_plan_whatif_answer, text), .least = 1},
    {"keeping_costs", LHI_DERIVED(lh_plan_whatif_answer),
     .write = write_keeping},
    {"kept", LHI_STRUCT(lh_plan_whatif_answer, kept),
     .table = &lhi_choice_table},
    {"best", LHI_STRUCT(lh_plan_whatif_answer, best),
     .table = &lhi_choice_table},
};
const lhi_schema lhi_answer_table = {
    LHI_ROWS("answer", lh_plan_whatif_answer, answer_rows),
    .check = check_keeping};

/* --- sensitivity ---------------------------------------------------------- */

/* Checks that the two scale factors that bracket a break-even value in a plan
 * file are in order: factor_below, then factor_above. */
static lh_status check_factors(const lhi_read_context *r, const lhi_node *map,
                               void *it, lh_error *err)
{
    const lh_plan_break_even *f = it;
    if (f->factor_above >= f->factor_below)
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(map, "factor_above"), err,
                        LH_EINPUT, "is below factor_below");
}

static const lhi_schema_field flip_rows[] = {
    {"factor_below", LHI_REAL(lh_plan_break_even, factor_below), .low = 1e-9,
     .high = 1e9},
    {"factor_above", LHI_REAL(lh_plan_break_even, factor_above), .low = 1e-9,
     .high = 1e9},
    {"below", LHI_STRUCT(lh_plan_break_even, below),
     .table = &lhi_choice_table},
    {"above", LHI_STRUCT(lh_plan_break_even, above),
     .table = &lhi_choice_table},
};
static const lhi_schema flip_table = {
    LHI_ROWS("flip", lh_plan_break_even, flip_rows), .check = check_factors};

lh_status lhi_plan_read_datacenter(const lhi_read_context *r,
                                   const lhi_node *node, uint32_t *out,
                                   lh_error *err)
{
    const lh_job *job = ((const lh_plan *)r->context)->job;
    const char *name;
    LHI_TRY(lhi_node_get_string(r->doc, node, &name, err));
    for (*out = 0; *out < job->n_datacenters; ++*out)
        if (strcmp(job->datacenters[*out].name, name) == 0)
            return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "the job has no datacenter '%.60s'", name);
}

/* Reads the two datacenters of a break-even range (one quantity of one or all
 * links) from a plan file. LH_EINPUT: not two different ones. */
static lh_status read_between(const lhi_read_context *r, const lhi_node *list,
                              void *owner, lh_error *err)
{
    lh_plan_range *range = owner;
    LHI_TRY(lhi_node_check_list(r->doc, list, err));
    if (list->n_items != 2)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "must name two datacenters");
    LHI_TRY(lhi_plan_read_datacenter(r, list->first, &range->from, err));
    LHI_TRY(lhi_plan_read_datacenter(r, list->first->next, &range->to, err));
    if (range->from != range->to)
        return LH_OK;
    return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                        "must name two different datacenters");
}

/* Returns the JSON list of the names of a break-even range's two
 * datacenters. */
static json_t *write_between(const void *owner, const void *context)
{
    const lh_plan_range *range = owner;
    const lh_datacenter *sites = ((const lh_plan *)context)->job->datacenters;
    return json_pack("[s,s]", sites[range->from].name, sites[range->to].name);
}

/* Returns as JSON the job's value of a break-even range's quantity (latency in
 * ms or bandwidth in Gb/s); null if its links have different values. */
static json_t *write_value(const void *owner, const void *context)
{
    double value = 0;
    bool known =
        lhi_range_value(((const lh_plan *)context)->job, owner, &value);
    return known ? json_real(value) : json_null();
}

/* Checks that `value` of a break-even range in a plan file is the job's value
 * of its quantity. LH_EINPUT otherwise. */
static lh_status check_value(const lhi_read_context *r, const lhi_node *map,
                             void *it, lh_error *err)
{
    const lh_job *job = ((const lh_plan *)r->context)->job;
    const lhi_node *node;
    double value = 0, stored = 0;
    bool known = lhi_range_value(job, it, &value);
    LHI_TRY(lhi_node_require(r->doc, map, "value", &node, err));
    if (!lhi_node_is_null(node))
        LHI_TRY(lhi_node_get_number(r->doc, node, 0, 1e300, &stored, err));
    if (known == !lhi_node_is_null(node) &&
        is_nearly_equal(stored, value * known))
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "does not match these links in the job");
}

/* Lets a break-even range, `it`, apply to all links, before its keys are read
 * from a plan file: `between` is optional. */
static void start_range(const lhi_read_context *r, void *it)
{
    lh_plan_range *range = it;
    (void)r;
    range->from = range->to = LH_ALL_LINKS;
}

/* Other quantities are not varied. */
static const char *const quantities[] = {"latency", "bandwidth", NULL};

static const lhi_schema_field range_rows[] = {
    {"between", LHI_CUSTOM(lh_plan_range), .read = read_between,
     .write = write_between, LHI_OMIT_IF(lh_plan_range, from, LH_ALL_LINKS)},
    {"quantity", LHI_ENUM(lh_plan_range, quantity), .names = quantities},
    {"value", LHI_DERIVED(lh_plan_range), .write = write_value},
    {"flips", LHI_LIST(lh_plan_range, break_evens, n_break_evens),
     .table = &flip_table},
};
static const lhi_schema range_table = {
    LHI_ROWS("range", lh_plan_range, range_rows), .start = start_range,
    .check = check_value};

static const lhi_schema_field sensitivity_rows[] = {
    {"least", LHI_REAL(lh_plan_sensitivity, min_factor), .low = 1e-9,
     .high = 1},
    {"most", LHI_REAL(lh_plan_sensitivity, max_factor), .low = 1, .high = 1e9},
    {"tolerance", LHI_REAL(lh_plan_sensitivity, tolerance), .high = 1e9},
    {"margin", LHI_REAL(lh_plan_sensitivity, margin), .when = LHI_DEFAULTED,
     .high = 1e9},
    {"here", LHI_STRUCT(lh_plan_sensitivity, reference),
     .table = &lhi_choice_table},
    {"ranges", LHI_LIST(lh_plan_sensitivity, ranges, n_ranges),
     .table = &range_table},
};
const lhi_schema lhi_sensitivity_table = {
    LHI_ROWS("sensitivity", lh_plan_sensitivity, sensitivity_rows)};

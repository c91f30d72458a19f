/* SPDX-License-Identifier: Apache-2.0 */
/* `network` and `flags` of a plan: docs/formats/plan.md. */
#include "format/job/parse.h"
#include "model/paths.h"
#include "planner/explain/link_advice.h"
#include "planner/file/plan_file.h"

#include <string.h>

static const lhi_schema_field option_rows[] = {
    {"setting", LHI_STRUCT(lh_advice_option, setting),
     .table = &lhi_link_setting_schema},
    {"message_gbps", LHI_GBPS(lh_advice_option, message_bytes_per_s),
     .high = 1e290, .when = LHI_NULLABLE},
    {"message_s", LHI_SECONDS(lh_advice_option, message_ns), .high = 9e9,
     .when = LHI_NULLABLE, .absent = -1},
    {"data_gbps", LHI_GBPS(lh_advice_option, data_bytes_per_s), .high = 1e290,
     .when = LHI_NULLABLE},
    {"iteration_s", LHI_SECONDS(lh_advice_option, iteration_ns), .high = 9e9,
     .when = LHI_NULLABLE, .absent = -1},
    {"advised", LHI_BOOL(lh_advice_option, advised)},
};
static const lhi_schema option_table = {
    LHI_ROWS("option", lh_advice_option, option_rows)};

static const lhi_schema_field published_rows[] = {
    {"low", LHI_REAL(lh_advice_published, low), .high = 1e9},
    {"high", LHI_REAL(lh_advice_published, high), .high = 1e9},
    {"where", LHI_STRING(lh_advice_published, where)},
};
static const lhi_schema published_table = {
    LHI_ROWS("published", lh_advice_published, published_rows)};

static const lhi_schema_field question_rows[] = {
    {"question", LHI_ENUM(lh_advice_question, topic),
     .names = lhi_advice_topics},
    {"matters", LHI_BOOL(lh_advice_question, change_advised)},
    {"why", LHI_STRING(lh_advice_question, why)},
    {"gain", LHI_REAL(lh_advice_question, gain), .high = 1e290,
     .when = LHI_DEFAULTED},
    {"differs", LHI_REAL(lh_advice_question, spread), .high = 1e290,
     .when = LHI_DEFAULTED},
    {"published", LHI_STRUCT_POINTER(lh_advice_question, published),
     .table = &published_table, .when = LHI_OPTIONAL},
    {"sure", LHI_STRING(lh_advice_question, confidence), .when = LHI_OPTIONAL},
    {"options", LHI_LIST(lh_advice_question, options, n_options),
     .table = &option_table},
};
static const lhi_schema question_table = {
    LHI_ROWS("question", lh_advice_question, question_rows)};

/* Checks that the job has a datacenter, or a datacenter with zones, of this
 * name. LH_EINPUT otherwise. */
static lh_status check_site(const lhi_read_context *r, const lhi_node *map,
                            const char *key, const char *name, lh_error *err)
{
    const lh_job *job = ((const lh_plan *)r->context)->job;
    if (lhi_find_datacenter(job, name) != LH_NONE)
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(map, key), err, LH_EINPUT,
                        "the job has no datacenter '%.60s'", name);
}

/* Checks that the two datacenters of a link advice (`it`), as read from a plan
 * file, exist in the job and differ. LH_EINPUT otherwise. */
static lh_status check_ends(const lhi_read_context *r, const lhi_node *map,
                            void *it, lh_error *err)
{
    const lh_link_advice *a = it;
    LHI_TRY(check_site(r, map, "from", a->from, err));
    LHI_TRY(check_site(r, map, "to", a->to, err));
    if (strcmp(a->from, a->to) != 0)
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(map, "to"), err, LH_EINPUT,
                        "must differ from 'from'");
}

static const lhi_schema_field link_rows[] = {
    {"from", LHI_STRING(lh_link_advice, from)},
    {"to", LHI_STRING(lh_link_advice, to)},
    {"messages", LHI_INTEGER(lh_link_advice, messages), .most = INT64_MAX},
    {"message_bytes", LHI_INTEGER(lh_link_advice, message_bytes),
     .most = INT64_MAX},
    {"message_flows", LHI_INTEGER(lh_link_advice, message_flows),
     .most = INT64_MAX},
    {"data_bytes", LHI_INTEGER(lh_link_advice, data_bytes), .most = INT64_MAX},
    {"data_flows", LHI_INTEGER(lh_link_advice, data_flows), .most = INT64_MAX},
    {"expert_bytes", LHI_INTEGER(lh_link_advice, expert_bytes),
     .most = INT64_MAX, LHI_OMIT_IF(lh_link_advice, expert_bytes, 0)},
    {"data_step_bytes", LHI_INTEGER(lh_link_advice, data_step_bytes),
     .most = INT64_MAX},
    {"paths", LHI_INTEGER(lh_link_advice, paths), .least = 1,
     .most = UINT32_MAX},
    {"paths_given", LHI_BOOL(lh_link_advice, paths_from_job)},
    {"measured", LHI_BOOL(lh_link_advice, measured)},
    {"planned", LHI_STRUCT(lh_link_advice, planned), .table = &option_table},
    {"advised", LHI_STRUCT(lh_link_advice, advised), .table = &option_table},
    {"questions", LHI_LIST(lh_link_advice, questions, n_questions),
     .table = &question_table},
};
const lhi_schema lhi_link_advice_table = {
    LHI_ROWS("advice", lh_link_advice, link_rows), .check = check_ends};

/* Checks that the gain of an option's advice in a plan file, the map `map`, is
 * the saved fraction of before_ns, the time `whose`. LH_EINPUT otherwise. */
static lh_status check_saving(const lhi_read_context *r, const lhi_node *map,
                              const lh_flag_advice *f, int64_t before_ns,
                              const char *whose, lh_error *err)
{
    const double want = 1 - (double)f->iteration_ns / (double)before_ns;
    if (f->gain > want - 1e-6 && f->gain < want + 1e-6)
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(map, "gain"), err, LH_EINPUT,
                        "must be the saved fraction of %s, %.6g", whose, want);
}

/* Checks the gain of an option's advice, `it`, on the plan's layout. */
static lh_status check_gain(const lhi_read_context *r, const lhi_node *map,
                            void *it, lh_error *err)
{
    const lh_plan *p = r->context;
    return check_saving(r, map, it, p->best.iteration_ns,
                        "the plan's iteration", err);
}

static const lhi_schema_field flag_rows[] = {
    {"key", LHI_STRING(lh_flag_advice, key)},
    {"flag", LHI_STRING(lh_flag_advice, flag)},
    {"iteration_s", LHI_SECONDS(lh_flag_advice, iteration_ns), .high = 9e9},
    {"gain", LHI_REAL(lh_flag_advice, gain), .low = -1e9, .high = 1},
    {"peak_memory_bytes", LHI_INTEGER(lh_flag_advice, peak_memory_bytes),
     .most = INT64_MAX},
    {"advised", LHI_BOOL(lh_flag_advice, advised)},
    {"fixed", LHI_BOOL(lh_flag_advice, fixed),
     LHI_OMIT_IF(lh_flag_advice, fixed, false)},
    {"certainty", LHI_STRING(lh_flag_advice, certainty)},
};
const lhi_schema lhi_flag_advice_table = {
    LHI_ROWS("flag", lh_flag_advice, flag_rows), .check = check_gain};

/* Checks that the layout that a plan file names as fastest with other options
 * is faster than the plan with its own advised ones, and the options' gains.
 * LH_EINPUT otherwise. */
static lh_status check_flag_plan(const lhi_read_context *r, const lhi_node *map,
                                 void *it, lh_error *err)
{
    const lh_flag_plan *f = it;
    const lh_plan *p = r->context;
    const int64_t own = p->flags_ns >= 0 ? p->flags_ns : p->best.iteration_ns;
    if (f->best->iteration_ns <= 0 || f->best->iteration_ns >= own ||
        f->best->iteration_ns > f->before_ns)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "best"), err, LH_EINPUT,
                            "must be faster than the plan with its advised "
                            "options and than before_s");
    const lhi_node *row = lhi_node_find(map, "flags")->first;
    for (uint32_t i = 0; i < f->n_flags; i++, row = row->next)
        LHI_TRY(
            check_saving(r, row, &f->flags[i], f->before_ns, "before_s", err));
    return LH_OK;
}

/* Options of another layout; check_flag_plan() checks their gains. */
static const lhi_schema own_flag_table = {
    LHI_ROWS("flag", lh_flag_advice, flag_rows)};
static const lhi_schema_field flag_plan_rows[] = {
    {"before_s", LHI_SECONDS(lh_flag_plan, before_ns), .high = 9e9},
    {"exceeds_memory", LHI_BOOL(lh_flag_plan, exceeds_memory),
     LHI_OMIT_IF(lh_flag_plan, exceeds_memory, false)},
    {"flags", LHI_LIST(lh_flag_plan, flags, n_flags), .table = &own_flag_table,
     .min_items = 1},
    {"best", LHI_STRUCT_POINTER(lh_flag_plan, best),
     .table = &lhi_choice_table},
};
const lhi_schema lhi_flag_plan_table = {
    LHI_ROWS("layout with other flags", lh_flag_plan, flag_plan_rows),
    .check = check_flag_plan};

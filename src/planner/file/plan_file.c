/* SPDX-License-Identifier: Apache-2.0 */
/* The complete plan file: docs/formats/plan.md. */
#include "planner/file/plan_file.h"
#include "planner/plan_internal.h"

#include "format/job/parse.h"
#include "planner/search/pareto_front.h"
#include "schedule/pipeline/file/pipe_file.h"

#include <string.h>

/* Returns the plan to which a plan file's top-level keys belong, as the
 * internal struct; `owner` is the callback's argument. */
static lhi_plan *get_plan(void *owner)
{
    return owner;
}

/* --- schedule ------------------------------------------------------------- */

/* Reads the plan's scheduling method from a plan file. LH_EINPUT: it differs
 * from the layout's. */
static lh_status read_method(const lhi_read_context *r, const lhi_node *node,
                             void *owner, lh_error *err)
{
    lh_plan *p = owner;
    const char *planned = p->best.layout.schedule;
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "must be a string");
    if (planned && strcmp(planned, node->text) != 0)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "is '%.60s', but layout.schedule is '%.60s'",
                            node->text, planned);
    p->best.layout.schedule = lhi_arena_strdup(r->mem, node->text);
    return p->best.layout.schedule ? LH_OK : lhi_fail_nomem(err);
}

/* Returns the JSON name of the plan's scheduling method. */
static json_t *write_method(const void *owner, const void *context)
{
    (void)context;
    return json_string(((const lh_plan *)owner)->best.layout.schedule);
}

static const char *const proofs[] = {"optimal", "feasible", NULL};

/* Returns JSON: "optimal" if the plan's makespan equals the lower bound on its
 * layout's schedules, else "feasible". */
static json_t *write_proof(const void *owner, const void *context)
{
    (void)context;
    return json_string(
        proofs[lhi_choice_gap(&((const lh_plan *)owner)->best) > 0]);
}

/* Returns as JSON the relative gap between the plan's makespan and the lower
 * bound on its layout's schedules. */
static json_t *write_schedule_gap(const void *owner, const void *context)
{
    (void)context;
    return json_real(lhi_choice_gap(&((const lh_plan *)owner)->best));
}

/* Reads the plan's schedule from a plan file: each device's order of passes and
 * each link's order of messages. The plan owns it. */
static lh_status read_rows(const lhi_read_context *r, const lhi_node *node,
                           void *owner, lh_error *err)
{
    lhi_plan *plan = get_plan(owner);
    LHI_TRY(lhi_schedule_from_map(r->doc, node->parent, &plan->schedule, err));
    plan->plan.schedule = plan->schedule;
    return LH_OK;
}

/* Returns the JSON of each device's order of passes in the plan's schedule. */
static json_t *write_rows(const void *owner, const void *context)
{
    (void)context;
    return lhi_schedule_rows_to_json(((const lh_plan *)owner)->schedule);
}

/* Returns the JSON of each link's order of messages in the plan's schedule. */
static json_t *write_link_orders(const void *owner, const void *context)
{
    (void)context;
    return lhi_schedule_links_to_json(((const lh_plan *)owner)->schedule);
}

/* Checks whether a number in the file, `stored`, equals `value` with a relative
 * tolerance of 1e-9. */
static bool is_nearly_equal(double stored, double value)
{
    return stored >= value * (1 - 1e-9) && stored <= value * (1 + 1e-9);
}

/* Checks that `status` and `gap` of the schedule match its makespan and lower
 * bound; older plans do not have these keys. */
static lh_status check_schedule(const lhi_read_context *r, const lhi_node *map,
                                void *it, lh_error *err)
{
    const lh_plan *p = it;
    double gap = lhi_choice_gap(&p->best), stored = gap;
    const lhi_node *status = lhi_node_find(map, "status");
    const lhi_node *node = lhi_node_find(map, "gap");
    uint32_t proof = gap > 0;
    if (status)
        LHI_TRY(lhi_node_get_choice(r->doc, status, proofs, &proof, err));
    if (node)
        LHI_TRY(lhi_node_get_number(r->doc, node, 0, 1e300, &stored, err));
    if (proof == (gap > 0) && is_nearly_equal(stored, gap))
        return LH_OK;
    return lhi_doc_fail(r->doc, proof == (gap > 0) ? node : status, err,
                        LH_EINPUT, "does not match lower_bound_ns");
}

static const lhi_schema_field schedule_rows[] = {
    {"method", LHI_CUSTOM(lh_plan), .read = read_method, .write = write_method},
    {"status", LHI_DERIVED(lh_plan), .write = write_proof},
    {"gap", LHI_DERIVED(lh_plan), .write = write_schedule_gap},
    {"rows", LHI_CUSTOM(lh_plan), .read = read_rows, .write = write_rows},
    {"link_orders", LHI_CUSTOM(lh_plan), .write = write_link_orders,
     .when = LHI_OPTIONAL}, /* read with the rows */
};
static const lhi_schema schedule_table = {
    LHI_ROWS("schedule", lh_plan, schedule_rows), .check = check_schedule};

/* --- search --------------------------------------------------------------- */

/* Returns as JSON the lower bound on the iteration time over all layouts that
 * the plan's search proved, in seconds. */
static json_t *write_bound(const void *owner, const void *context)
{
    (void)context;
    return json_real((double)((const lh_plan *)owner)->search_bound_ns / 1e9);
}

/* Returns as JSON the relative gap between the plan's iteration time and the
 * lower bound over all layouts. */
static json_t *write_gap(const void *owner, const void *context)
{
    (void)context;
    return json_real(lh_plan_gap(owner));
}

/* Returns as JSON the number of GPUs that the plan uses. */
static json_t *write_gpus(const void *owner, const void *context)
{
    (void)context;
    return json_integer(lh_plan_gpus(owner));
}

/* Reads how many layouts the search pruned by each kind of bound from a plan
 * file; the map's keys are the kinds' names. */
static lh_status read_pruned(const lhi_read_context *r, const lhi_node *map,
                             void *owner, lh_error *err)
{
    lh_plan *p = owner;
    int64_t n;
    LHI_TRY(lhi_node_check_map(r->doc, map, err));
    lh_plan_pruned *list = LHI_NEW(r->mem, lh_plan_pruned, map->n_items);
    if (!list)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = map->first; node; node = node->next) {
        lh_plan_pruned *one = &list[p->n_pruned++];
        LHI_TRY(lhi_node_get_int(r->doc, node, 0, INT64_MAX, &n, err));
        one->n = (uint64_t)n;
        one->bound = lhi_arena_strdup(r->mem, node->key);
        if (!one->bound)
            return lhi_fail_nomem(err);
    }
    p->pruned = list;
    return LH_OK;
}

/* Returns as JSON how many layouts the search pruned by each kind of bound;
 * NULL on allocation failure. */
static json_t *write_pruned(const void *owner, const void *context)
{
    const lh_plan *p = owner;
    json_t *map = json_object();
    (void)context;
    for (uint32_t i = 0; map && i < p->n_pruned; i++)
        if (json_object_set_new(map, p->pruned[i].bound,
                                json_integer((int64_t)p->pruned[i].n)) != 0) {
            json_decref(map);
            return NULL;
        }
    return map;
}

/* Checks that the used GPUs match the layout, and that lower_bound_s and `gap`
 * match the search's lower bound. Older plans do not have these keys. */
static lh_status check_search(const lhi_read_context *r, const lhi_node *map,
                              void *it, lh_error *err)
{
    const lh_plan *p = it;
    const lhi_node *node = lhi_node_find(map, "gpus_used");
    double stored, gap = lh_plan_gap(p);
    uint32_t gpus;
    if (node)
        LHI_TRY(lhi_node_get_u32(r->doc, node, 1, UINT32_MAX, &gpus, err));
    if (node && gpus != lh_plan_gpus(p))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "does not match the layout");
    if (!lhi_node_find(map, "lower_bound_ns"))
        return LH_OK;
    LHI_TRY(lhi_node_require(r->doc, map, "left", &node, err));
    LHI_TRY(lhi_node_require(r->doc, map, "pruned", &node, err));
    LHI_TRY(lhi_node_require(r->doc, map, "lower_bound_s", &node, err));
    LHI_TRY(lhi_node_get_number(r->doc, node, 0, 1e300, &stored, err));
    if (!is_nearly_equal(stored, (double)p->search_bound_ns / 1e9))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "does not match lower_bound_ns");
    LHI_TRY(lhi_node_require(r->doc, map, "gap", &node, err));
    LHI_TRY(lhi_node_get_number(r->doc, node, -1e300, 1e300, &stored, err));
    if (stored < gap * (1 - 1e-9) - 1e-12 || stored > gap * (1 + 1e-9) + 1e-12)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "does not match lower_bound_ns");
    return LH_OK;
}

#define COUNT(key, member)                                                     \
    {                                                                          \
        key, LHI_INTEGER(lh_plan, member), .most = UINT32_MAX                  \
    }
#define IF_PROVEN LHI_OMIT_IF(lh_plan, search_bound_ns, 0)

static const lhi_schema_field search_rows[] = {
    COUNT("layouts", n_layouts),
    COUNT("memory", n_memory),
    COUNT("bounded", n_bounded),
    COUNT("simulated", n_simulated),
    COUNT("unsupported", n_unsupported),
    COUNT("dropped", n_dropped),
    {"lower_bound_s", LHI_DERIVED(lh_plan), .write = write_bound, IF_PROVEN},
    {"lower_bound_ns", LHI_INTEGER(lh_plan, search_bound_ns), .least = 1,
     .most = INT64_MAX, IF_PROVEN},
    {"gap", LHI_DERIVED(lh_plan), .write = write_gap, IF_PROVEN},
    {"lower_bound_usd", LHI_NUMBER(lh_plan, search_bound_usd), .high = 1e300,
     .when = LHI_OPTIONAL},
    {"left", LHI_INTEGER(lh_plan, n_unexplored), .most = UINT32_MAX, IF_PROVEN},
    {"elastic", LHI_INTEGER(lh_plan, n_elastic), .most = UINT32_MAX,
     .when = LHI_OPTIONAL},
    {"elastic_left", LHI_INTEGER(lh_plan, n_elastic_unexplored),
     .most = UINT32_MAX, .when = LHI_OPTIONAL},
    {"gpus_used", LHI_DERIVED(lh_plan), .write = write_gpus, IF_PROVEN},
    {"beyond", LHI_STRING(lh_plan, outside_search_space), .when = LHI_OPTIONAL},
    {"pruned", LHI_CUSTOM(lh_plan), .read = read_pruned, .write = write_pruned,
     IF_PROVEN},
};
static const lhi_schema search_table = {
    LHI_ROWS("search", lh_plan, search_rows), .check = check_search};

static const lhi_schema_field unmeasured_rows[] = {
    {"entries", LHI_INTEGER(lh_plan_unmeasured, n_entries), .most = UINT32_MAX},
    {"fastest", LHI_STRUCT_POINTER(lh_plan_unmeasured, fastest),
     .table = &lhi_choice_table, .when = LHI_OPTIONAL},
};
static const lhi_schema unmeasured_table = {
    LHI_ROWS("unmeasured", lh_plan_unmeasured, unmeasured_rows)};

static const lhi_schema_field margin_rows[] = {
    {"percent", LHI_REAL(lh_plan_margin, percent), .high = 100,
     LHI_OMIT_IF(lh_plan_margin, percent, 0)},
    {"gib", LHI_REAL(lh_plan_margin, gib), .high = 1e6,
     LHI_OMIT_IF(lh_plan_margin, gib, 0)},
    {"best", LHI_STRUCT_POINTER(lh_plan_margin, best),
     .table = &lhi_choice_table, .when = LHI_OPTIONAL},
};
static const lhi_schema margin_table = {
    LHI_ROWS("margin", lh_plan_margin, margin_rows)};

/* --- complete file -------------------------------------------------------- */

/* Reads the plan's pipeline from a plan file. The plan owns it. */
static lh_status read_pipeline(const lhi_read_context *r, const lhi_node *node,
                               void *owner, lh_error *err)
{
    lhi_plan *plan = get_plan(owner);
    LHI_TRY(lhi_node_check_map(r->doc, node, err));
    LHI_TRY(lhi_pipeline_from_node(r->doc, node, &plan->pipeline, err));
    plan->plan.pipeline = plan->pipeline;
    return LH_OK;
}

/* Returns the JSON of the plan's pipeline; NULL on allocation failure. */
static json_t *write_pipeline(const void *owner, const void *context)
{
    json_t *map;
    (void)context;
    return lhi_pipeline_to_json(((const lh_plan *)owner)->pipeline, &map,
                                NULL) == LH_OK
               ? map
               : NULL;
}

/* Returns the JSON of the plan's job. */
static json_t *write_job(const void *owner, const void *context)
{
    (void)context;
    return lhi_job_to_json(((const lh_plan *)owner)->job);
}

static const lhi_schema_field accuracy_rows[] = {
    {"kind", LHI_STRING(lh_validated_runs, kind)},
    {"runs", LHI_INTEGER(lh_validated_runs, n), .least = 1, .most = UINT32_MAX},
    {"mean_percent", LHI_REAL(lh_validated_runs, mean_percent), .high = 1e6},
    {"worst_percent", LHI_REAL(lh_validated_runs, worst_percent), .high = 1e6},
    /* plans of older versions lack the following */
    {"gpu_types", LHI_STRING(lh_validated_runs, gpu_types),
     .when = LHI_OPTIONAL},
    {"gpus_least", LHI_INTEGER(lh_validated_runs, gpus_least),
     .most = UINT32_MAX, .when = LHI_OPTIONAL},
    {"gpus_most", LHI_INTEGER(lh_validated_runs, gpus_most), .most = UINT32_MAX,
     .when = LHI_OPTIONAL},
    {"sequence_least", LHI_INTEGER(lh_validated_runs, sequence_least),
     .most = UINT32_MAX, .when = LHI_OPTIONAL},
    {"sequence_most", LHI_INTEGER(lh_validated_runs, sequence_most),
     .most = UINT32_MAX, .when = LHI_OPTIONAL},
    {"outside", LHI_STRING(lh_validated_runs, outside), .when = LHI_OPTIONAL},
};
static const lhi_schema accuracy_table = {
    LHI_ROWS("accuracy", lh_validated_runs, accuracy_rows)};

json_t *lhi_accuracy_to_json(const lh_validated_runs *runs)
{
    return lhi_schema_write(&accuracy_table, runs, NULL);
}

static const lhi_schema_field ties_rows[] = {
    {"layouts", LHI_INTEGER(lh_plan_ties, n), .least = 1, .most = UINT32_MAX},
    {"practice", LHI_STRUCT_POINTER(lh_plan_ties, practice),
     .table = &lhi_choice_table},
};
static const lhi_schema ties_table = {
    LHI_ROWS("ties", lh_plan_ties, ties_rows)};

static const lhi_schema_field plan_rows[] = {
    {"longhaul", LHI_DERIVED(lh_plan), .description = "plan/1"},
    {"name", LHI_STRING(lh_plan, name)},
    {"version", LHI_STRING(lh_plan, version)},
    {"input_hash", LHI_STRING(lh_plan, input_hash)},
    {"cost_source", LHI_STRING(lh_plan, cost_source)},
    {"accuracy", LHI_STRUCT_POINTER(lh_plan, accuracy),
     .table = &accuracy_table, .when = LHI_OPTIONAL},
    {NULL, LHI_INLINED(lh_plan, best), .table = &lhi_choice_table},
    {"schedule", LHI_NESTED_MAP(lh_plan), .table = &schedule_table},
    {"pipeline", LHI_CUSTOM(lh_plan), .read = read_pipeline,
     .write = write_pipeline},
    {"search", LHI_NESTED_MAP(lh_plan), .table = &search_table},
    {"account", LHI_STRUCT_POINTER(lh_plan, breakdown),
     .table = &lhi_account_table, .when = LHI_OPTIONAL},
    {"memory", LHI_LIST(lh_plan, rank_memory, n_ranks),
     .table = &lhi_memory_table, .when = LHI_OPTIONAL},
    {"runners_up",
     LHI_LIST(lh_plan, dimension_alternatives, n_dimension_alternatives),
     .table = &lhi_runner_table, .when = LHI_OPTIONAL},
    {"curves", LHI_LIST(lh_plan, curves, n_curves), .table = &lhi_curve_table,
     .when = LHI_OPTIONAL},
    {"network", LHI_LIST(lh_plan, network, n_network),
     .table = &lhi_link_advice_table, .when = LHI_OPTIONAL},
    {"network_iteration_s", LHI_SECONDS(lh_plan, network_ns), .high = 9e9,
     .when = LHI_OPTIONAL, .absent = -1},
    {"network_now_iteration_s", LHI_SECONDS(lh_plan, network_now_ns),
     .high = 9e9, .when = LHI_OPTIONAL, .absent = -1},
    {"flags", LHI_LIST(lh_plan, flags, n_flags),
     .table = &lhi_flag_advice_table, .when = LHI_OPTIONAL},
    {"flags_iteration_s", LHI_SECONDS(lh_plan, flags_ns), .high = 9e9,
     .when = LHI_OPTIONAL, .absent = -1},
    {"flags_layout", LHI_STRUCT_POINTER(lh_plan, flag_plan),
     .table = &lhi_flag_plan_table, .when = LHI_OPTIONAL},
    {"robust", LHI_STRUCT_POINTER(lh_plan, robust), .table = &lhi_robust_table,
     .when = LHI_OPTIONAL},
    {"methods", LHI_LIST(lh_plan, methods, n_methods),
     .table = &lhi_choice_table},
    {"ties", LHI_STRUCT_POINTER(lh_plan, ties), .table = &ties_table,
     .when = LHI_OPTIONAL},
    {"alternatives", LHI_LIST(lh_plan, alternatives, n_alternatives),
     .table = &lhi_choice_table},
    {"objective", LHI_ENUM(lh_plan, objective),
     .names = lhi_plan_objective_names, .when = LHI_OPTIONAL,
     .absent = LH_PLAN_FASTEST},
    {"front", LHI_LIST(lh_plan, pareto_front, n_pareto),
     .table = &lhi_choice_table, .max_items = LHI_MAX_PARETO_FRONT,
     .when = LHI_OPTIONAL},
    {"front_whole", LHI_BOOL(lh_plan, pareto_complete),
     LHI_OMIT_IF(lh_plan, n_pareto, 0)},
    {"front_slow", LHI_INTEGER(lh_plan, n_pareto_slow), .most = UINT32_MAX,
     .when = LHI_OPTIONAL},
    {"front_knee", LHI_INTEGER(lh_plan, pareto_knee), .most = UINT32_MAX,
     .when = LHI_OPTIONAL},
    {"front_near", LHI_INTEGER(lh_plan, pareto_near), .most = UINT32_MAX,
     .when = LHI_OPTIONAL},
    {"what_if", LHI_LIST(lh_plan, answers, n_answers),
     .table = &lhi_answer_table, .when = LHI_OPTIONAL},
    {"sensitivity", LHI_STRUCT_POINTER(lh_plan, sensitivity),
     .table = &lhi_sensitivity_table, .when = LHI_OPTIONAL},
    {"without_framework", LHI_STRUCT_POINTER(lh_plan, unrestricted),
     .table = &lhi_choice_table, .when = LHI_OPTIONAL},
    {"unmeasured", LHI_STRUCT_POINTER(lh_plan, unmeasured),
     .table = &unmeasured_table, .when = LHI_OPTIONAL},
    {"margin", LHI_STRUCT_POINTER(lh_plan, margin), .table = &margin_table,
     .when = LHI_OPTIONAL},
    {"idle", LHI_LIST(lh_plan, idle, n_idle), .table = &lhi_idle_table,
     .when = LHI_OPTIONAL},
    {"job", LHI_CUSTOM(lh_plan), .write = write_job}, /* read first */
};
const lhi_schema lhi_plan_table = {LHI_ROWS("plan", lh_plan, plan_rows),
                                   .check = lhi_plan_check};

/* --- texts ---------------------------------------------------------------- */

/* Reads a plan from a document: its job first, then all other keys. */
static lh_status read_plan(const lhi_doc *doc, lhi_plan *plan, lh_error *err)
{
    const lhi_read_context r = {
        .doc = doc, .mem = plan->mem, .context = &plan->plan};
    const lhi_node *job;
    LHI_TRY(lhi_doc_check_format(doc, "plan", 1, err));
    LHI_TRY(lhi_node_require(doc, doc->root, "job", &job, err));
    LHI_TRY(lhi_node_check_map(doc, job, err));
    LHI_TRY(lhi_job_from_node(doc, job, NULL, &plan->job, err));
    plan->plan.job = plan->job; /* provides the datacenter names of layouts */
    LHI_TRY(lhi_schema_read(&r, doc->root, &lhi_plan_table, &plan->plan, err));
    lhi_pareto_front_find_knee(&plan->plan, &plan->plan.pareto_knee,
                               &plan->plan.pareto_near);
    return LH_OK;
}

/* Builds a plan from a document and frees the document. The caller frees *out
 * with lh_plan_free(). */
static lh_status build_plan(lhi_doc *doc, lh_plan **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_plan *plan = mem ? LHI_NEW(mem, lhi_plan, 1) : NULL;
    lh_status status;
    if (!plan) {
        lhi_arena_free(mem);
        status = lhi_fail_nomem(err);
    } else {
        plan->mem = mem;
        status = read_plan(doc, plan, err);
        if (status != LH_OK)
            lh_plan_free(&plan->plan);
        else
            *out = &plan->plan;
    }
    lhi_doc_free(doc);
    return status;
}

lh_status lh_plan_parse(const char *text, size_t len, const char *name,
                        lh_plan **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, LHI_INPUT_PLAN, &doc, err));
    return build_plan(doc, out, err);
}

lh_status lh_plan_read(const char *path, lh_plan **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, LHI_INPUT_PLAN, &doc, err));
    return build_plan(doc, out, err);
}

lh_status lh_plan_format(const lh_plan *plan, char **text, size_t *len,
                         lh_error *err)
{
    return lhi_json_format(lhi_schema_write(&lhi_plan_table, plan, plan), text,
                           len, err);
}

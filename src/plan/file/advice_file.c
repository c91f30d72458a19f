/* SPDX-License-Identifier: Apache-2.0 */
/* `network` of a plan: docs/formats/plan.md. */
#include "plan/plan_own.h"

#include "plan/explain/advise.h"

#include "spec/spec.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool set(json_t *map, const char *key, json_t *value)
{
    return json_object_set_new(map, key, value) == 0;
}

static json_t *seconds(int64_t ns)
{
    return ns < 0 ? json_null() : json_real((double)ns / 1e9);
}

static json_t *gbps(double bytes_per_s)
{
    return bytes_per_s > 0 ? json_real(bytes_per_s * 8 / 1e9) : json_null();
}

/* --- writing ---------------------------------------------------------------
 */

static json_t *option_to_json(const lh_advice_option *o)
{
    json_t *setting = json_object(), *map = json_object();
    bool ok = setting && map && lhi_link_setting_to_map(&o->setting, setting);
    ok = set(map, "setting", setting) && ok;
    ok = ok && set(map, "message_gbps", gbps(o->message_bytes_per_s)) &&
         set(map, "message_s", seconds(o->message_ns)) &&
         set(map, "data_gbps", gbps(o->data_bytes_per_s)) &&
         set(map, "iteration_s", seconds(o->iteration_ns)) &&
         set(map, "advised", json_boolean(o->advised));
    if (ok)
        return map;
    json_decref(map);
    return NULL;
}

static json_t *question_to_json(const lh_advice_question *q)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < q->n_options; i++)
        if (json_array_append_new(list, option_to_json(&q->options[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return json_pack("{s:s, s:b, s:s, s:o}", "question",
                     lh_advice_topic_name(q->topic), "matters", q->matters,
                     "why", q->why, "options", list);
}

static json_t *link_to_json(const lh_link_advice *a)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < a->n_questions; i++)
        if (json_array_append_new(list, question_to_json(&a->questions[i])) !=
            0) {
            json_decref(list);
            return NULL;
        }
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:o, s:o, "
        "s:o}",
        "from", a->from, "to", a->to, "messages", (json_int_t)a->messages,
        "message_bytes", (json_int_t)a->message_bytes, "message_flows",
        (json_int_t)a->message_flows, "data_bytes", (json_int_t)a->data_bytes,
        "data_flows", (json_int_t)a->data_flows, "data_step_bytes",
        (json_int_t)a->data_step_bytes, "paths", (json_int_t)a->paths,
        "paths_given", a->paths_given, "measured", a->measured, "planned",
        option_to_json(&a->planned), "advised", option_to_json(&a->advised),
        "questions", list);
}

json_t *lhi_network_to_json(const lh_plan *plan)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < plan->n_network; i++)
        if (json_array_append_new(list, link_to_json(&plan->network[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* --- reading ---------------------------------------------------------------
 */

typedef struct reader {
    const lhi_doc *doc;
    const lh_job *job;
    lhi_arena *mem;
} reader;

static lh_status get_bool(const reader *r, const lhi_node *map, const char *key,
                          bool *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_bool(r->doc, node, out, err);
}

static lh_status get_int(const reader *r, const lhi_node *map, const char *key,
                         int64_t *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_int(r->doc, node, 0, INT64_MAX, out, err);
}

static lh_status get_text(const reader *r, const lhi_node *map, const char *key,
                          const char **out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "must be a text");
    *out = lhi_arena_strdup(r->mem, node->text);
    return *out ? LH_OK : lhi_fail_nomem(err);
}

static lh_status get_site(const reader *r, const lhi_node *map, const char *key,
                          const char **out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(get_text(r, map, key, out, err));
    for (uint32_t i = 0; i < r->job->n_datacenters; i++)
        if (strcmp(r->job->datacenters[i].name, *out) == 0)
            return LH_OK;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "the job has no datacenter '%.60s'", *out);
}

/* A number above 0, or null: *out is 0. */
static lh_status get_or_null(const reader *r, const lhi_node *map,
                             const char *key, double most, bool *there,
                             double *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    *there = !lhi_is_null(node);
    *out = 0;
    return *there ? lhi_get_number(r->doc, node, 0, most, out, err) : LH_OK;
}

static lh_status get_rate(const reader *r, const lhi_node *map, const char *key,
                          double *out, lh_error *err)
{
    bool there;
    LHI_TRY(get_or_null(r, map, key, 1e290, &there, out, err));
    *out *= 1e9 / 8;
    return LH_OK;
}

static lh_status get_seconds(const reader *r, const lhi_node *map,
                             const char *key, int64_t *out, lh_error *err)
{
    double value;
    bool there;
    LHI_TRY(get_or_null(r, map, key, 9e9, &there, &value, err));
    *out = there ? llround(value * 1e9) : -1;
    return LH_OK;
}

static lh_status read_option(const reader *r, const lhi_node *map,
                             lh_advice_option *out, lh_error *err)
{
    static const char *const keys[] = {"setting",   "message_gbps", "message_s",
                                       "data_gbps", "iteration_s",  "advised",
                                       NULL};
    static const char *const settings[] = {LHI_LINK_SETTING_KEYS, NULL};
    const lhi_node *setting;
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(lhi_need(r->doc, map, "setting", &setting, err));
    LHI_TRY(lhi_known_keys(r->doc, setting, settings, err));
    LHI_TRY(lhi_link_setting_from_map(r->doc, setting, &out->setting, err));
    LHI_TRY(get_rate(r, map, "message_gbps", &out->message_bytes_per_s, err));
    LHI_TRY(get_seconds(r, map, "message_s", &out->message_ns, err));
    LHI_TRY(get_rate(r, map, "data_gbps", &out->data_bytes_per_s, err));
    LHI_TRY(get_seconds(r, map, "iteration_s", &out->iteration_ns, err));
    return get_bool(r, map, "advised", &out->advised, err);
}

static lh_status read_question(const reader *r, const lhi_node *map,
                               lh_advice_question *out, lh_error *err)
{
    static const char *const keys[] = {"question", "matters", "why", "options",
                                       NULL};
    const lhi_node *node;
    uint32_t topic;
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(lhi_need(r->doc, map, "question", &node, err));
    LHI_TRY(lhi_get_choice(r->doc, node, lhi_advice_topics, &topic, err));
    out->topic = (lh_advice_topic)topic;
    LHI_TRY(get_bool(r, map, "matters", &out->matters, err));
    LHI_TRY(get_text(r, map, "why", &out->why, err));
    LHI_TRY(lhi_need(r->doc, map, "options", &node, err));
    LHI_TRY(lhi_want_list(r->doc, node, err));
    lh_advice_option *all = LHI_NEW(r->mem, lh_advice_option, node->n_items);
    if (!all)
        return lhi_fail_nomem(err);
    for (const lhi_node *o = node->first; o; o = o->next)
        LHI_TRY(read_option(r, o, &all[o->index], err));
    out->options = all;
    out->n_options = node->n_items;
    return LH_OK;
}

static lh_status read_traffic(const reader *r, const lhi_node *map,
                              lh_link_advice *out, lh_error *err)
{
    int64_t counts[3];
    LHI_TRY(get_int(r, map, "messages", &counts[0], err));
    LHI_TRY(get_int(r, map, "message_bytes", &out->message_bytes, err));
    LHI_TRY(get_int(r, map, "message_flows", &counts[1], err));
    LHI_TRY(get_int(r, map, "data_bytes", &out->data_bytes, err));
    LHI_TRY(get_int(r, map, "data_flows", &counts[2], err));
    LHI_TRY(get_int(r, map, "data_step_bytes", &out->data_step_bytes, err));
    out->messages = (uint64_t)counts[0];
    out->message_flows = (uint64_t)counts[1];
    out->data_flows = (uint64_t)counts[2];
    return LH_OK;
}

static lh_status read_link(const reader *r, const lhi_node *map,
                           lh_link_advice *out, lh_error *err)
{
    static const char *const keys[] = {
        "from",          "to",          "messages",   "message_bytes",
        "message_flows", "data_bytes",  "data_flows", "data_step_bytes",
        "paths",         "paths_given", "measured",   "planned",
        "advised",       "questions",   NULL};
    const lhi_node *node;
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(get_site(r, map, "from", &out->from, err));
    LHI_TRY(get_site(r, map, "to", &out->to, err));
    if (strcmp(out->from, out->to) == 0)
        return lhi_doc_fail(r->doc, lhi_find(map, "to"), err, LH_EINPUT,
                            "must be another datacenter than 'from'");
    LHI_TRY(read_traffic(r, map, out, err));
    LHI_TRY(lhi_need(r->doc, map, "paths", &node, err));
    LHI_TRY(lhi_get_u32(r->doc, node, 1, UINT32_MAX, &out->paths, err));
    LHI_TRY(get_bool(r, map, "paths_given", &out->paths_given, err));
    LHI_TRY(get_bool(r, map, "measured", &out->measured, err));
    LHI_TRY(lhi_need(r->doc, map, "planned", &node, err));
    LHI_TRY(read_option(r, node, &out->planned, err));
    LHI_TRY(lhi_need(r->doc, map, "advised", &node, err));
    LHI_TRY(read_option(r, node, &out->advised, err));
    LHI_TRY(lhi_need(r->doc, map, "questions", &node, err));
    LHI_TRY(lhi_want_list(r->doc, node, err));
    lh_advice_question *all =
        LHI_NEW(r->mem, lh_advice_question, node->n_items);
    if (!all)
        return lhi_fail_nomem(err);
    for (const lhi_node *q = node->first; q; q = q->next)
        LHI_TRY(read_question(r, q, &all[q->index], err));
    out->questions = all;
    out->n_questions = node->n_items;
    return LH_OK;
}

lh_status lhi_network_from_root(const lhi_doc *doc, lhi_arena *mem,
                                lh_plan *plan, lh_error *err)
{
    const reader r = {doc, plan->job, mem};
    const lhi_node *list = lhi_find(doc->root, "network");
    const lhi_node *with = lhi_find(doc->root, "network_iteration_s");
    plan->network_ns = -1;
    if (with && (!list || !list->first))
        return lhi_doc_fail(doc, with, err, LH_EINPUT,
                            "there are no links in 'network' to be set");
    if (!list)
        return LH_OK;
    LHI_TRY(lhi_want_list(doc, list, err));
    lh_link_advice *links = LHI_NEW(mem, lh_link_advice, list->n_items);
    if (!links)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(read_link(&r, node, &links[node->index], err));
    plan->network = links;
    plan->n_network = list->n_items;
    if (!with)
        return LH_OK;
    return get_seconds(&r, doc->root, "network_iteration_s", &plan->network_ns,
                       err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a commented template of a job. The values listed for a key come from
 * the tables that parse it, and the text is parsed before it is returned, so
 * that no rule of the format is duplicated here. */
#include <longhaul/experimental/draft.h>

#include "base/options.h"
#include "base/text.h"
#include "format/job/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Column of remarks and maximum line width in the template. */
enum { REMARKS_AT = 44, WIDTH = 100 };

/* Default one-way latencies of the node's link and of the fabric, in
 * microseconds. */
#define NODE_US 3
#define FABRIC_US 8

/* The template under construction. */
typedef struct draft {
    lhi_text text;
    lh_draft_options o;
    const lh_model *model;
    lh_model *loaded; /* from a config.json; NULL: a preset */
    lh_precision precision;
    const lhi_draft_sections *given; /* NULL: no part is given */
} draft;

/* --- lines ---------------------------------------------------------------- */

void lhi_draft_add_comment(lhi_text *text, size_t at, const char *words)
{
    size_t column = at + 1;
    lhi_text_puts(text, "#");
    while (*words) {
        size_t len = strcspn(words, " ");
        if (column > at + 1 && column + 1 + len > WIDTH) {
            lhi_text_printf(text, "\n%*s#", (int)at, "");
            column = at + 1;
        }
        lhi_text_printf(text, " %.*s", (int)len, words);
        column += 1 + len;
        words += len;
        words += strspn(words, " ");
    }
    lhi_text_puts(text, "\n");
}

void lhi_draft_add_line(lhi_text *text, const char *left, const char *remark)
{
    size_t at = strlen(left) + 2 > REMARKS_AT ? strlen(left) + 2 : REMARKS_AT;
    if (!*remark) {
        lhi_text_printf(text, "%s\n", left);
    } else if (at + 30 > WIDTH) {
        size_t indent = strspn(left, " ");
        lhi_text_printf(text, "%*s", (int)indent, "");
        lhi_draft_add_comment(text, indent, remark);
        lhi_text_printf(text, "%s\n", left);
    } else {
        lhi_text_printf(text, "%-*s", (int)at, left);
        lhi_draft_add_comment(text, at, remark);
    }
}

/* Appends `before`, then the words of the NULL-terminated list `words`,
 * separated by commas. */
static void append_list(lhi_text *out, const char *before,
                        const char *const *words)
{
    lhi_text_puts(out, before);
    for (uint32_t i = 0; words[i]; i++)
        lhi_text_printf(out, "%s%s", i ? ", " : "", words[i]);
}

/* Appends the line `left`, "key: value", with `remark` as its comment, and
 * frees `remark`. */
static void add_line_and_free(lhi_text *text, const char *left,
                              lhi_text *remark)
{
    lhi_draft_add_line(text, left, remark->data ? remark->data : "");
    text->failed = text->failed || remark->failed;
    lhi_text_fini(remark);
}

/* Appends the line `left`, "key: value", to the template. Its comment is
 * `remark`, the list of valid `words`, and `after`. */
static void add_choice(lhi_text *text, const char *left, const char *remark,
                       const char *const *words, const char *after)
{
    lhi_text all = {0};
    append_list(&all, remark, words);
    lhi_text_puts(&all, after);
    add_line_and_free(text, left, &all);
}

void lhi_draft_add_value(lhi_text *text, const char *remark, const char *format,
                         ...)
{
    char left[512];
    va_list list;
    va_start(list, format);
    vsnprintf(left, sizeof left, format, list);
    va_end(list);
    lhi_draft_add_line(text, left, remark);
}

/* Collects a table's keys, without those of nested tables. */
typedef struct key_collector {
    const lhi_schema *table, *setting;
    lhi_text text;
    const char *const *but; /* keys to skip: already written */
} key_collector;

/* Appends the key of schema field `row` to the list unless its collector
 * excludes the key or the field is of another schema. Callback for
 * lhi_schema_walk(). */
static void list_key(const lhi_schema *table, const lhi_schema_field *row,
                     void *list)
{
    key_collector *all = list;
    if (!row->key || (table != all->table && table != all->setting))
        return;
    for (uint32_t i = 0; all->but[i]; i++)
        if (strcmp(all->but[i], row->key) == 0)
            return;
    lhi_text_printf(&all->text, "%s%s", all->text.len ? ", " : "", row->key);
}

/* Returns the keys of schema `table`, and of the schema `setting` inlined in
 * it, except those in `but`, separated by commas; the caller frees the text. */
static lhi_text list_keys(const lhi_schema *table, const lhi_schema *setting,
                          const char *const *but)
{
    key_collector all = {table, setting, {0}, but};
    lhi_schema_walk(table, list_key, &all);
    return all.text;
}

/* --- sections ------------------------------------------------------------- */

/* Adds the introduction and the line `longhaul: job/1` to the job template. */
static void add_head(draft *d)
{
    lhi_text *t = &d->text;
    lhi_draft_add_comment(
        t, 0,
        "A training job; to plan it: longhaul plan FILE. Change the values "
        "where yours differ. All keys: docs/formats/job.md; lines such as '# "
        "zero: 1' take effect without their first #.");
    lhi_text_puts(t, "longhaul: job/1\n\n");
}

/* Adds the model's section to the job template. */
static void add_model(draft *d)
{
    lhi_text *t = &d->text;
    const lh_model *m = d->model;
    char size[160];
    snprintf(size, sizeof size,
             "The model (docs/models.md): %u layers, %.2f billion parameters, "
             "%.2f of which a token passes.",
             m->layers, (double)lh_model_params(m) / 1e9,
             (double)lh_model_active_params(m) / 1e9);
    lhi_draft_add_comment(t, 0, size);
    if (d->loaded) {
        json_t *path = json_string(d->o.model);
        char *text = path ? json_dumps(path, JSON_ENCODE_ANY) : NULL;
        t->failed = t->failed || !text;
        lhi_draft_add_value(t, "a Hugging Face config.json", "model: %s",
                            text ? text : "");
        free(text);
        json_decref(path);
        return;
    }
    char left[96];
    snprintf(left, sizeof left, "model: %s", m->name);
    add_choice(t, left, "one of ", lh_model_presets(),
               "; the path of a Hugging Face config.json; or a map of sizes");
}

/* Adds the training section to the job template, with optional keys as
 * comments. */
static void add_training(draft *d)
{
    lhi_text *t = &d->text;
    const lh_draft_options *o = &d->o;
    lhi_text_puts(t, "\n");
    lhi_draft_add_comment(t, 0,
                          "Training settings: docs/formats/job.md#training");
    lhi_draft_add_line(t, "training:", "");
    lhi_draft_add_value(t, "sequences per iteration, over all replicas",
                        "  global_batch: %u", o->global_batch);
    lhi_draft_add_value(t, "tokens per sequence", "  sequence: %u",
                        o->sequence);
    char left[64];
    snprintf(left, sizeof left, "  precision: %s",
             lh_precision_name(d->precision));
    add_choice(t, left, "compute precision: ", lhi_precision_names, "");
    add_choice(t, "  optimizer: adamw", "", lhi_optimizer_names, "");
    lhi_draft_add_line(t, "  # zero: 1",
                       "ZeRO stage, 0 to 3; default: 1 to 3 are searched");
    add_choice(t, "  # recompute: none",
               "recomputation of activations: ", lhi_recompute_names,
               ", or a list of modules; default: these are searched");
    static const char *const written[] = {"global_batch", "sequence",
                                          "precision",    "optimizer",
                                          "zero",         "recompute"};
    const char *others[16];
    uint32_t n = 0;
    for (uint32_t i = 0; lhi_training_keys[i] && n < 15; i++) {
        bool is_there = false;
        for (size_t j = 0; j < sizeof written / sizeof *written; j++)
            is_there =
                is_there || strcmp(written[j], lhi_training_keys[i]) == 0;
        if (!is_there)
            others[n++] = lhi_training_keys[i];
    }
    others[n] = NULL;
    lhi_text all = {0};
    append_list(&all, "Further keys: ", others);
    lhi_text_puts(t, "  ");
    lhi_draft_add_comment(t, 2, all.data ? all.data : "");
    t->failed = t->failed || all.failed;
    lhi_text_fini(&all);
}

/* Adds the framework section to the job template, as a comment. */
static void add_framework(draft *d)
{
    lhi_text *t = &d->text;
    static const char *const but[] = {"preset", NULL};
    const lhi_schema_field *preset =
        lhi_schema_find_field(&lhi_framework_schema, "preset");
    lhi_text keys = list_keys(&lhi_framework_schema, NULL, but);
    lhi_text_puts(t, "\n");
    lhi_draft_add_comment(t, 0,
                          "Training framework: its defaults determine times "
                          "and memory, and plans "
                          "are for it (docs/formats/job.md#framework)");
    lhi_text all = {0};
    append_list(&all, "", preset->names);
    lhi_text_printf(&all, "; and %s", keys.data ? keys.data : "");
    all.failed = all.failed || keys.failed;
    lhi_text_fini(&keys);
    add_line_and_free(t, "# framework: {preset: megatron}", &all);
}

/* Returns the usual server for a datacenter's GPU: GPUs per node, with the
 * caller's number if given, and network rates. */
static lhi_server find_server(const lh_draft_site *site)
{
    lhi_server server = lhi_gpu_find_server(lh_gpu_preset(site->gpu));
    if (site->gpus_per_node)
        server.gpus_per_node = site->gpus_per_node;
    return server;
}

/* Format of a network in the template: rate and latency. */
#define NETWORK "{gbps: %.15g, latency_us: %d}"

/* Returns the known price of a site's GPU per hour; 0: none. */
static double find_gpu_price(const lh_draft_site *site)
{
    return site->region ? lh_cloud_usd_per_gpu_hour(
                              site->region, lh_gpu_preset(site->gpu)->name)
                        : 0;
}

/* Returns the first site whose GPU's price is unknown; NULL: none. A job with
 * prices needs all. */
static const lh_draft_site *find_unpriced_site(const draft *d)
{
    for (uint32_t i = 0; i < d->o.n_sites; i++)
        if (!(find_gpu_price(&d->o.sites[i]) > 0))
            return &d->o.sites[i];
    return NULL;
}

/* Adds the comment on the presets of cloud regions to the job template. */
static void add_region_comment(draft *d)
{
    const lh_draft_site *unpriced = find_unpriced_site(d);
    char text[400];
    if (unpriced)
        snprintf(text, sizeof text,
                 "Cloud regions: latencies are presets "
                 "(docs/formats/cloud.md); no list price of %.40s in %.60s is "
                 "known, so that the job has no prices (usd_per_gpu_hour, "
                 "usd_per_gb); the bandwidth between regions is an assumption.",
                 lh_gpu_preset(unpriced->gpu)->name, unpriced->region);
    else
        snprintf(text, sizeof text,
                 "Cloud regions: latencies and list prices are presets "
                 "(docs/formats/cloud.md); the bandwidth between regions is an "
                 "assumption.");
    lhi_text_puts(&d->text, "  ");
    lhi_draft_add_comment(&d->text, 2, text);
}

/* Adds the cluster's GPU and its networks inside and between nodes to the job
 * template. */
static void add_machine(draft *d)
{
    lhi_text *t = &d->text;
    const lh_draft_site *first = &d->o.sites[0];
    const lhi_server m = find_server(first);
    char left[96];
    snprintf(left, sizeof left, "  gpu: %s", lh_gpu_preset(first->gpu)->name);
    add_choice(t, left, "one of ", lh_gpu_presets(),
               "; or a map of tflops, memory_gib, memory_gbps");
    lhi_draft_add_value(t, "GPUs per node", "  gpus_per_node: %u",
                        m.gpus_per_node);
    lhi_draft_add_value(
        t,
        "between GPUs of a node, per GPU: 10^9 bits per second per direction; "
        "one-way microseconds",
        "  node_link: " NETWORK, m.node_gbps, NODE_US);
    lhi_draft_add_value(t, "between nodes of a datacenter, per GPU",
                        "  fabric: " NETWORK, m.fabric_gbps, FABRIC_US);
    char reserve[64];
    snprintf(reserve, sizeof reserve, "  # memory_reserve: %d%%",
             LH_MEMORY_RESERVE_PERCENT);
    lhi_draft_add_line(t, reserve,
                       "GPU memory that no plan uses: a share, or GiB");
    if (!!find_unpriced_site(d))
        lhi_draft_add_line(
            t, "  # usd_per_gpu_hour: 2.5",
            "in any currency; plans then include the training cost");
}

const char *lhi_draft_site_name(const lh_draft_site *site, uint32_t i,
                                char text[16])
{
    static const char *const names[] = {"west", "east", "north", "south"};
    if (site->region)
        return strchr(site->region, ':') + 1;
    if (i < sizeof names / sizeof *names)
        return names[i];
    snprintf(text, 16, "site%u", i + 1);
    return text;
}

/* Adds datacenter `i`'s line to the job template: its differences from the
 * first one, whose values are the cluster's keys. */
static void add_site(draft *d, uint32_t i)
{
    lhi_text *t = &d->text;
    const lh_draft_site *first = &d->o.sites[0], *site = &d->o.sites[i];
    const lh_gpu *gpu = lh_gpu_preset(site->gpu);
    const lhi_server a = find_server(first), b = find_server(site);
    const bool same = gpu == lh_gpu_preset(first->gpu);
    char own[16];
    lhi_text_printf(t, "    - {name: %s, nodes: %u",
                    lhi_draft_site_name(&d->o.sites[i], i, own), site->nodes);
    if (!find_unpriced_site(d))
        lhi_text_printf(t, ", usd_per_gpu_hour: %.15g", find_gpu_price(site));
    if (!same)
        lhi_text_printf(t, ", gpu: %s", gpu->name);
    if (a.gpus_per_node != b.gpus_per_node)
        lhi_text_printf(t, ", gpus_per_node: %u", b.gpus_per_node);
    if (!same)
        lhi_text_printf(t, ",\n       node_link: " NETWORK ", fabric: " NETWORK,
                        b.node_gbps, NODE_US, b.fabric_gbps, FABRIC_US);
    lhi_text_puts(t, "}\n");
}

/* Adds the link from region `a` to region `b` to the job template, with the
 * known latency and price. */
static void add_region_link(draft *d, uint32_t a, uint32_t b)
{
    const char *from = d->o.sites[a].region, *to = d->o.sites[b].region;
    char x[16], y[16];
    lhi_text_printf(&d->text,
                    "    - {from: %s, to: %s, latency_ms: %.15g, gbps: %.15g",
                    lhi_draft_site_name(&d->o.sites[a], a, x),
                    lhi_draft_site_name(&d->o.sites[b], b, y),
                    (double)lh_cloud_latency_ns(from, to) / 1e6, d->o.gbps);
    if (!find_unpriced_site(d))
        lhi_text_printf(&d->text, ", usd_per_gb: %.15g",
                        lh_cloud_usd_per_gb(from, to));
    lhi_text_puts(&d->text, "}\n");
}

/* Adds a link for each pair of datacenters to the job template. */
static void add_links(draft *d)
{
    lhi_text *t = &d->text;
    static const char *const but[] = {"between", "from",       "to",
                                      "gbps",    "latency_ms", NULL};
    const double ms = (double)d->o.latency_ns / 1e6;
    lhi_text keys =
        list_keys(&lhi_job_link_schema, &lhi_link_setting_schema, but);
    lhi_text all = {0};
    lhi_text_printf(&all,
                    "one per pair: one-way milliseconds; 10^9 bits per second "
                    "per direction, for all traffic. Use 'from: west, to: "
                    "east' in place of 'between' for one direction. Further "
                    "keys: %s",
                    keys.data ? keys.data : "");
    all.failed = all.failed || keys.failed;
    lhi_text_fini(&keys);
    add_line_and_free(t, "  links:", &all);
    for (uint32_t a = 0; a < d->o.n_sites; a++)
        for (uint32_t b = a + 1; b < d->o.n_sites; b++) {
            if (d->o.sites[a].region) {
                add_region_link(d, a, b);
                add_region_link(d, b, a);
                continue;
            }
            char x[16], y[16];
            lhi_text_printf(t,
                            "    - {between: [%s, %s], latency_ms: %.15g, "
                            "gbps: %.15g}\n",
                            lhi_draft_site_name(&d->o.sites[a], a, x),
                            lhi_draft_site_name(&d->o.sites[b], b, y), ms,
                            d->o.gbps);
        }
}

/* Adds the cluster's section to the job template. */
static void add_cluster(draft *d)
{
    lhi_text *t = &d->text;
    lhi_text_puts(t, "\n");
    lhi_draft_add_comment(t, 0, "Cluster: docs/formats/job.md#cluster");
    lhi_draft_add_line(t, "cluster:", "");
    add_machine(d);
    if (d->o.sites[0].region)
        add_region_comment(d);
    lhi_draft_add_line(
        t, "  datacenters:",
        "nodes of each; its own gpu, gpus_per_node, node_link or fabric "
        "overrides those above");
    for (uint32_t i = 0; i < d->o.n_sites; i++)
        add_site(d, i);
    if (d->o.n_sites > 1)
        add_links(d);
}

/* Adds the layout section to the job template, as a comment. */
static void add_layout(draft *d)
{
    lhi_text *t = &d->text;
    lhi_text_puts(t, "\n");
    lhi_draft_add_comment(t, 0,
                          "Fixed values of the layout; all others are searched "
                          "(docs/formats/job.md#layout)");
    add_choice(t, "# layout: {pipeline: 2, micro_batch: 1}", "any of ",
               lhi_layout_keys, "");
}

/* --- defaults ------------------------------------------------------------- */

/* Finds the model's preset, or loads its config.json. */
static lh_status find_model(draft *d, lh_error *err)
{
    const char *name = d->o.model ? d->o.model : lh_model_presets()[0];
    d->o.model = name;
    d->model = lh_model_preset(name);
    if (d->model)
        return LH_OK;
    /* Loads the model early, because its size is needed here. Parsing the
     * finished job reports invalid names and the search path. */
    lhi_text path = {0};
    if (d->o.folder && *d->o.folder && name[0] != '/')
        lhi_text_printf(&path, "%s/", d->o.folder);
    lhi_text_puts(&path, name);
    lh_status status = path.failed ? lhi_fail_nomem(err)
                                   : lh_model_read(path.data, &d->loaded, err);
    lhi_text_fini(&path);
    d->model = d->loaded;
    return status;
}

/* Returns the smallest power of two of nodes whose memory holds the
 * datacenter's part of four times the training state. The state has 18 bytes
 * per parameter: 6 of weights and gradients, 12 of optimizer state. */
static uint32_t count_required_nodes(const draft *d, const lh_draft_site *site)
{
    const double bytes =
        4 * 18.0 * (double)lh_model_params(d->model) / d->o.n_sites;
    const double node = (double)lh_gpu_preset(site->gpu)->memory_bytes *
                        find_server(site).gpus_per_node;
    uint32_t nodes = 1;
    while (nodes < LH_MAX_GPUS / 2 && nodes * node < bytes)
        nodes *= 2;
    return nodes;
}

lh_status lhi_draft_check_sites(const lh_draft_options *o, lh_error *err)
{
    if (o->n_sites > LH_MAX_DATACENTERS)
        return lhi_fail(err, LH_EINPUT, "%u sites; at most %u are allowed",
                        o->n_sites, LH_MAX_DATACENTERS);
    for (uint32_t i = 0; i < o->n_sites; i++) {
        const char *name = o->sites[i].gpu, *region = o->sites[i].region;
        lhi_text known = {0};
        if (!region != !o->sites[0].region)
            return lhi_fail(err, LH_EINPUT,
                            "sites with and without a cloud region; give all "
                            "or none");
        if (region && !lh_cloud_has_region(region))
            return lhi_fail(err, LH_EINPUT, "unknown cloud region '%.60s'",
                            region);
        for (uint32_t k = 0; region && k < i; k++)
            if (strcmp(region, o->sites[k].region) == 0)
                return lhi_fail(err, LH_EINPUT, "cloud region '%.60s' twice",
                                region);
        if (name && lh_gpu_preset(name))
            continue;
        append_list(&known, "", lh_gpu_presets());
        if (!known.failed)
            lhi_fail(err, LH_EINPUT, "unknown GPU '%.60s'; known: %s",
                     name ? name : "", known.data);
        lh_status status = known.failed ? lhi_fail_nomem(err) : LH_EINPUT;
        lhi_text_fini(&known);
        return status;
    }
    return LH_OK;
}

/* Fills in defaults for the options that are not given, and the node counts in
 * sites[]. Chooses FP16 if a datacenter's GPU does not support BF16. */
static void choose_defaults(draft *d, lh_draft_site *sites)
{
    lh_draft_options *o = &d->o;
    const uint32_t positions = d->model->positions;
    for (uint32_t i = 0; i < o->n_sites; i++) {
        if (!sites[i].nodes)
            sites[i].nodes = count_required_nodes(d, &sites[i]);
        if (!lhi_gpu_preset_supports(sites[i].gpu, d->precision))
            d->precision = LH_PRECISION_FP16;
    }
    if (!o->sequence)
        o->sequence = positions && positions < LH_DRAFT_SEQUENCE
                          ? positions
                          : LH_DRAFT_SEQUENCE;
    if (!o->global_batch)
        o->global_batch =
            LH_DRAFT_TOKENS > o->sequence ? LH_DRAFT_TOKENS / o->sequence : 1;
    if (!o->latency_ns)
        o->latency_ns = LH_DRAFT_LATENCY_NS;
    if (!(o->gbps > 0))
        o->gbps = LH_DRAFT_GBPS;
}

/* Adds all sections of the template. The caller's sections d->given, if any,
 * replace all except the cluster, and optionally the cluster too. */
static void add_sections(draft *d)
{
    const lhi_draft_sections *g = d->given;
    if (g) {
        lhi_text_puts(&d->text, g->before);
    } else {
        add_head(d);
        add_model(d);
        add_training(d);
        add_framework(d);
    }
    if (g && g->cluster)
        lhi_text_puts(&d->text, g->cluster);
    else
        add_cluster(d);
    if (g)
        lhi_text_puts(&d->text, g->after);
    else
        add_layout(d);
}

/* Writes the job template to *text, *len bytes, and parses it as a check. The
 * caller releases *text with lh_text_free(). */
static lh_status write_draft(draft *d, char **text, size_t *len, lh_error *err)
{
    lh_job *job = NULL;
    lhi_doc *doc;
    add_sections(d);
    if (d->text.failed)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_doc_parse(d->text.data, d->text.len,
                          d->given ? d->given->name : "draft", LHI_INPUT_JOB,
                          &doc, err));
    doc->origins = d->given ? d->given->origins : NULL;
    lh_status status =
        lhi_job_from_node(doc, doc->root, d->o.folder, &job, err);
    lhi_doc_free(doc);
    if (status != LH_OK)
        return status;
    lh_job_free(job);
    return lhi_text_take(&d->text, text, len, err);
}

/* Builds a job template in *text, *len bytes, from the options; `given`:
 * sections that replace the template's own, or NULL. */
static lh_status make_draft(const lh_draft_options *options,
                            const lhi_draft_sections *given, char **text,
                            size_t *len, lh_error *err)
{
    draft d = {.precision = LH_PRECISION_BF16, .given = given};
    const lh_draft_site usual = {.gpu = "h100-sxm"};
    lh_draft_site sites[LH_MAX_DATACENTERS];
    LHI_TRY(LHI_OPTIONS_COPY(lh_draft_options, &d.o, options, err));
    LHI_TRY(lhi_draft_check_sites(&d.o, err));
    if (d.o.n_sites == 0) {
        d.o.n_sites = 1;
        d.o.sites = &usual;
    }
    memcpy(sites, d.o.sites, d.o.n_sites * sizeof *sites);
    d.o.sites = sites;
    lh_status status = LH_OK;
    if (given)
        d.model = given->model;
    else
        status = find_model(&d, err);
    if (status == LH_OK) {
        choose_defaults(&d, sites);
        status = write_draft(&d, text, len, err);
    }
    lhi_text_fini(&d.text);
    lh_model_free(d.loaded);
    return status;
}

lh_status lh_job_draft(const lh_draft_options *options, char **text,
                       size_t *len, lh_error *err)
{
    return make_draft(options, NULL, text, len, err);
}

lh_status lhi_job_draft_with_sections(const lh_draft_options *options,
                                      const lhi_draft_sections *given,
                                      char **text, size_t *len, lh_error *err)
{
    return make_draft(options, given, text, len, err);
}

uint32_t lhi_draft_node_gpus(const lh_draft_site *site)
{
    return find_server(site).gpus_per_node;
}

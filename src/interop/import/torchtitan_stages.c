/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of each pipeline stage in torchtitan, and the order of their
 * passes: distributed/pipeline_parallel.py of torchtitan 0.3.0
 * (_get_pipeline_metadata, _generate_llm_fqn_per_model_part), and
 * torch/distributed/pipelining/schedules.py. */
#include "interop/import/torchtitan_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- schedules ------------------------------------------------------------ */

/* A PyTorch schedule and its longhaul counterpart. */
typedef struct schedule_mapping {
    const char *name; /* PyTorch's name, case-insensitive */
    const char *method;
    bool several;          /* several stages per rank */
    bool late;             /* receives are posted when a pass needs them */
    const char *otherwise; /* note, if it is costed differently */
} schedule_mapping;

static const schedule_mapping orders[] = {
    {"1F1B", "1f1b", false, true, NULL},
    {"GPipe", "gpipe", false, true, NULL},
    {"Interleaved1F1B", "interleaved-1f1b", true, false, NULL},
    {"LoopedBFS", "gpipe", true, false,
     "modelled in the pass order of gpipe, with stages in a loop or a V, "
     "whichever is faster"},
    {"InterleavedZeroBubble", "interleaved-1f1b", true, false,
     "modelled in the pass order of interleaved-1f1b, with joint backward "
     "passes"},
    {"ZBVZeroBubble", "zb-v", true, false, NULL},
    {"DualPipeV", "dualpipev", true, false,
     "modelled in its pass order, without overlap of passes"},
};

/* Returns longhaul's method for a PyTorch schedule's name in upper or lower
 * case, with the schedule's properties; NULL if it is unknown. */
static const schedule_mapping *find_schedule(const char *name)
{
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (strcasecmp(orders[i].name, name) == 0)
            return &orders[i];
    return NULL;
}

/* Reads the pipeline schedule's name; by default 1F1B. LH_EINPUT: it is
 * unknown. */
static lh_status read_schedule(const lhi_titan *t, const schedule_mapping **out,
                               lh_error *err)
{
    const char *name = lhi_titan_get_string(t, LHI_TITAN_SCHEDULE);
    *out = find_schedule(name ? name : "1F1B");
    if (*out)
        return LH_OK;
    return lhi_titan_fail(t, LHI_TITAN_SCHEDULE, LH_EINPUT, err,
                          "'%.40s' is not one of 1F1B, GPipe, Interleaved1F1B, "
                          "LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble, "
                          "DualPipeV",
                          name);
}

/* Checks whether a CSV file gives the schedule, rather than its name. */
static bool has_schedule_csv(const lhi_titan *t)
{
    const char *path = lhi_titan_get_string(t, LHI_TITAN_SCHEDULE_CSV);
    return path && *path;
}

/* Sets the layout's schedule: the named one, or for a CSV file the method that
 * options->schedule names.
 * LH_EINPUT: that method is missing, or given without a CSV file. */
static lh_status set_schedule(const lhi_titan *t, lhi_imported_job *in,
                              const lh_import_options *options,
                              const schedule_mapping *order, lh_error *err)
{
    lh_framework *f = &in->framework;
    if (has_schedule_csv(t)) {
        if (!options->schedule)
            return lhi_titan_fail(t, LHI_TITAN_SCHEDULE_CSV, LH_EINPUT, err,
                                  "the pass order is in that file; give the "
                                  "method that generated it by --schedule, or "
                                  "auto for the fastest");
        in->layout.schedule = options->schedule;
        return LH_OK;
    }
    if (options->schedule)
        return lhi_fail(err, LH_EINPUT,
                        "%s: has no file with a pass order, so --schedule has "
                        "no effect",
                        t->file);
    in->layout.schedule = order->method;
    if (order->late) {
        f->receives_given = true;
        f->receives = LH_RECEIVES_LATE;
        in->target = LH_TARGET_ANY;
    }
    if (order->otherwise)
        lhi_import_note(in, "%sparallelism.pipeline_parallel_schedule: %s",
                        t->form == LHI_TITAN_TOML ? "" : "--",
                        order->otherwise);
    return LH_OK;
}

/* --- listed stages -------------------------------------------------------- */

/* Copies the next name of a list such as "tok_embeddings,layers.0" to `name`
 * and advances *at past it. Returns NULL at the end. */
static const char *read_module_name(const char **at, char *name, size_t size)
{
    const size_t n = strcspn(*at, ",");
    const size_t kept = n < size ? n : size - 1;
    if (!**at)
        return NULL;
    memcpy(name, *at, kept);
    name[kept] = '\0';
    *at += n + ((*at)[n] == ',');
    return name;
}

/* Returns the number of a layer from a module's name such as "layers.3"; -1 for
 * another module. */
static int64_t read_layer_number(const char *name)
{
    char *end;
    if (strncmp(name, "layers.", 7) != 0)
        return -1;
    const long long number = strtoll(name + 7, &end, 10);
    return end == name + 7 || *end || number < 0 ? -1 : number;
}

/* Counts the layers in `list`, a stage's module names, into *layers. They must
 * continue from layer *next, which is advanced, with the embedding only in the
 * first stage and the head only in the last. Returns the error text, or NULL.
 * */
static const char *count_stage_layers(const char *list, bool first, bool last,
                                      uint32_t *next, uint32_t *layers)
{
    char name[64];
    bool embeds = false, heads = false;
    *layers = 0;
    while (read_module_name(&list, name, sizeof name)) {
        const int64_t layer = read_layer_number(name);
        if (strcmp(name, "tok_embeddings") == 0) {
            embeds = true;
        } else if (strcmp(name, "lm_head") == 0 ||
                   strcmp(name, "output") == 0) {
            heads = true;
        } else if (layer >= 0) {
            if (layer != (int64_t)*next)
                return "has layers missing or out of order";
            (*next)++;
            (*layers)++;
        } else if (strcmp(name, "norm") != 0) {
            return "has a module other than tok_embeddings, layers.N, norm "
                   "and lm_head";
        }
    }
    if (embeds != first)
        return "must have tok_embeddings if and only if it is the first stage";
    return heads == last ? NULL
                         : "must have lm_head if and only if it is the "
                           "last stage";
}

/* Reads each stage's layers from the module lists per stage.
 * LH_EINPUT or LH_EUNSUPPORTED: the lists do not match the model. */
static lh_status read_listed_stages(const lhi_titan *t, lhi_imported_job *in,
                                    uint32_t *layers, lh_error *err)
{
    const lhi_input_value *given = &t->keys[LHI_TITAN_STAGES];
    uint32_t next = 0;
    for (uint32_t i = 0; i < given->n; i++) {
        const char *wrong =
            count_stage_layers(given->values[i].text, i == 0, i + 1 == given->n,
                               &next, &layers[i]);
        if (wrong)
            return lhi_titan_fail(t, LHI_TITAN_STAGES, LH_EUNSUPPORTED, err,
                                  "stage %u of %u %s", i, given->n, wrong);
    }
    if (next != in->model.layers)
        return lhi_titan_fail(t, LHI_TITAN_STAGES, LH_EINPUT, err,
                              "has %u layers; the model has %u", next,
                              in->model.layers);
    return LH_OK;
}

/* --- counted stages ------------------------------------------------------- */

/* The layers' division by counts. */
typedef struct split {
    uint32_t stages, first, last; /* weights of the ends, in layers */
} split;

/* Reads the stage count, and the number of layers that the embedding and
 * the head each count as.
 * LH_EINPUT: the stages do not match the ranks or the schedule. */
static lh_status read_split(const lhi_titan *t, const lhi_imported_job *in,
                            const schedule_mapping *order, split *s,
                            lh_error *err)
{
    const uint32_t pipeline = in->layout.pipeline, most = LHI_MAX_LAYERS;
    uint32_t of_each = 0;
    *s = (split){pipeline * (order->several ? 2 : 1), 1, 1};
    LHI_TRY(lhi_titan_get_integer(t, LHI_TITAN_FIRST_LESS, 0, most, &s->first,
                                  err));
    LHI_TRY(
        lhi_titan_get_integer(t, LHI_TITAN_LAST_LESS, 0, most, &s->last, err));
    LHI_TRY(lhi_titan_get_integer(t, LHI_TITAN_LAYERS_PER_STAGE, 1, most,
                                  &of_each, err));
    if (!of_each)
        return LH_OK;
    const uint32_t all = in->model.layers + s->first + s->last;
    s->stages = (all + of_each - 1) / of_each;
    if (s->stages % pipeline != 0)
        return lhi_titan_fail(t, LHI_TITAN_LAYERS_PER_STAGE, LH_EINPUT, err,
                              "gives %u stages, not a multiple of "
                              "pipeline_parallel_degree %u",
                              s->stages, pipeline);
    if ((s->stages / pipeline > 1) != order->several)
        return lhi_titan_fail(t, LHI_TITAN_LAYERS_PER_STAGE, LH_EINPUT, err,
                              "gives %u stages per rank; %s requires %s",
                              s->stages / pipeline, order->name,
                              order->several ? "two or more" : "one");
    return LH_OK;
}

/* Computes each stage's layers, where the embedding and the head count as
 * layers.
 * LH_EINPUT: there are too few layers. */
static lh_status compute_stage_layers(const lhi_titan *t,
                                      const lhi_imported_job *in,
                                      const split *s, uint32_t *layers,
                                      lh_error *err)
{
    const uint32_t all = in->model.layers + s->first + s->last;
    const uint32_t each = all / s->stages, more = all % s->stages;
    if (each == 0 || s->first > each || s->last > each)
        return lhi_titan_fail(t, LHI_TITAN_PIPELINE, LH_EINPUT, err,
                              "%u layers, plus %u for the embedding and %u for "
                              "the head, are too few for %u stages",
                              in->model.layers, s->first, s->last, s->stages);
    for (uint32_t i = 0; i < s->stages; i++)
        layers[i] = each + (i < more) - (i == 0 ? s->first : 0) -
                    (i + 1 == s->stages ? s->last : 0);
    return LH_OK;
}

/* --- pipeline ------------------------------------------------------------- */

/* Checks that the `n` stages divide over the ranks and suit the schedule, and
 * that all between the ends have layers. */
static lh_status check_stages(const lhi_titan *t, const lhi_imported_job *in,
                              const schedule_mapping *order,
                              const uint32_t *layers, uint32_t n, lh_error *err)
{
    const uint32_t pipeline = in->layout.pipeline;
    if (n % pipeline != 0)
        return lhi_titan_fail(t, LHI_TITAN_STAGES, LH_EINPUT, err,
                              "has %u stages, not a multiple of "
                              "pipeline_parallel_degree %u",
                              n, pipeline);
    if (!has_schedule_csv(t) && (n > pipeline) != order->several)
        return lhi_titan_fail(
            t, LHI_TITAN_SCHEDULE, LH_EINPUT, err,
            "%s requires %s per rank, but there are %u", order->name,
            order->several ? "two or more stages" : "one stage", n / pipeline);
    for (uint32_t i = 1; i + 1 < n; i++)
        if (layers[i] == 0)
            return lhi_titan_fail(t, LHI_TITAN_PIPELINE, LH_EUNSUPPORTED, err,
                                  "stage %u of %u has no layers; longhaul "
                                  "supports this only for the first and the "
                                  "last stage",
                                  i, n);
    return LH_OK;
}

/* Reads the schedule and each stage's layers, for several ranks. */
static lh_status read_pipeline_stages(const lhi_titan *t, lhi_imported_job *in,
                                      const lh_import_options *options,
                                      lh_error *err)
{
    const lhi_input_value *listed = &t->keys[LHI_TITAN_STAGES];
    const schedule_mapping *order;
    split s;
    LHI_TRY(read_schedule(t, &order, err));
    LHI_TRY(read_split(t, in, order, &s, err));
    const bool is_listed = listed->is_given && listed->n;
    const uint32_t n = is_listed ? listed->n : s.stages;
    if (n > in->model.layers + 2)
        return lhi_titan_fail(t, LHI_TITAN_PIPELINE, LH_EINPUT, err,
                              "%u layers are too few for %u stages",
                              in->model.layers, n);
    uint32_t *layers = LHI_NEW(in->mem, uint32_t, n);
    if (!layers)
        return lhi_fail_nomem(err);
    LHI_TRY(is_listed ? read_listed_stages(t, in, layers, err)
                      : compute_stage_layers(t, in, &s, layers, err));
    LHI_TRY(check_stages(t, in, order, layers, n, err));
    in->layout.chunks_per_device = n / in->layout.pipeline;
    in->layout.n_chunk_layers = n;
    in->layout.chunk_layers = layers;
    return set_schedule(t, in, options, order, err);
}

lh_status lhi_titan_build_stages(const lhi_titan *t, lhi_imported_job *in,
                                 const lh_import_options *options,
                                 lh_error *err)
{
    lh_layout *l = &in->layout;
    if (l->pipeline > 1)
        return read_pipeline_stages(t, in, options, err);
    if (options->schedule)
        return lhi_fail(err, LH_EINPUT,
                        "%s: has no pipeline, so --schedule has no effect",
                        t->file);
    /* FSDP gathers and reduces layer by layer. */
    l->chunks_per_device = in->model.layers;
    l->schedule = l->chunks_per_device > 1 ? "interleaved-1f1b" : "1f1b";
    return LH_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing jobs, models and profiles. Input: their text. Output: lh_job,
 * lh_model, lh_profile, with every number checked, and their text again.
 *
 *     job.c, job_write.c   a job without its parts; job_layout.c: its layout;
 *                          job_names.c: its words; job_draft.c: a template
 *     cluster.c            its datacenters and the links between them;
 *                          link_setting.c: settings at a link's ends;
 *                          zones.c: datacenters split into their zones
 *     framework.c          behaviour of the training program
 *     layout_sites.c       the datacenters of a layout's stages
 *     model_map.c          its model; model_config.c: as config.json;
 *                          model_config_families.c: less usual families;
 *                          model_config_constants.c: constants without an
 *                          effect on time;
 *                          model.c: parameter counts and divisibility
 *     profile_file.c       measurements
 *     standalone_file.c    models and profiles in their own files
 *     gpu.c, model_preset.c             GPU and model presets
 *
 * This header declares the interface between these files. */
#ifndef LHI_FORMAT_JOB_PARSE_H
#define LHI_FORMAT_JOB_PARSE_H

#include <longhaul/experimental/draft.h>
#include <longhaul/experimental/job.h>
#include <longhaul/experimental/model.h>
#include <longhaul/experimental/profile.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/text.h"
#include "format/document/schema.h"

enum {
    LHI_MAX_LAYERS = 16384,
    LHI_MAX_WIDTH = 1 << 22, /* hidden, heads, head_dim, experts, ranks */
    LHI_MAX_VOCAB = 1 << 26, /* also MLP width and sequence length */
    LHI_MAX_DEGREE = 1 << 20,
    LHI_MAX_ENTRIES = 4096,          /* per profile */
    LHI_MAX_PIPELINE_SEGMENTS = 128, /* pipeline segments per layout */
};

/* Maximum price in USD. */
#define LHI_MAX_PRICE 1e9

/* --- values in their own files --- */

/* Fills the zeroed `value`; allocates its data in `mem`. */
typedef lh_status lhi_fill_fn(const lhi_doc *doc, lhi_arena *mem, void *value,
                              lh_error *err);
/* Parses a text, called `name` in messages, into a new struct of `size` bytes,
 * which the callback `fill` fills from the document. Release *out with
 * lhi_value_free(). */
lh_status lhi_value_parse(const char *text, size_t len, const char *name,
                          lhi_input_kind kind, size_t size, lhi_fill_fn *fill,
                          void **out, lh_error *err);
/* Reads and parses a file into a new struct of `size` bytes, which the callback
 * `fill` fills from the document. Release *out with lhi_value_free(). */
lh_status lhi_value_read(const char *path, lhi_input_kind kind, size_t size,
                         lhi_fill_fn *fill, void **out, lh_error *err);
/* Frees a struct made by lhi_value_parse() or lhi_value_read(), with its arena;
 * accepts NULL. */
void lhi_value_free(void *value);

/* --- models --- */

/* The keys of a model's map in a job file. */
extern const lhi_schema lhi_model_schema;
/* Reads a model from the map in a job file; allocates its data in `mem`. */
lh_status lhi_model_from_map(const lhi_doc *doc, const lhi_node *map,
                             lhi_arena *mem, lh_model *out, lh_error *err);
/* Replaces everything except printable ASCII by '?': names are written to JSON,
 * and a path need not be valid UTF-8. */
void lhi_replace_non_ascii(char *text);

/* Range of the norms' epsilon, added to the mean square. */
#define LHI_MIN_EPSILON 1e-20
#define LHI_MAX_EPSILON 1.0

/* A config.json class's defaults for constants without an effect on time. */
typedef struct lhi_config_class {
    const char *activation; /* its key */
    const char *function;   /* its value; NULL: SiLU */
    bool clamped_swiglu;    /* gpt-oss: fixed activation with swiglu_limit */
    bool rotary;            /* uses rotary positions */
    double rotary_fraction; /* a head's rotated fraction; 0: always 1 */
    const char *differs;    /* always unsupported; NULL: nothing */
} lhi_config_class;

/* Reads a config's constants, such as activation function and rotary scaling,
 * into a model whose sizes are known. `class_has`: defaults of the model's
 * class in transformers. Sets m->unsupported_keys to the file's name and those
 * keys whose values lh_model cannot represent; NULL: none. */
lh_status lhi_config_read_constants(const lhi_doc *doc, const lhi_node *map,
                                    const lhi_config_class *class_has,
                                    lhi_arena *mem, lh_model *model,
                                    lh_error *err);
/* Checks that a rotary scaling has exactly its type's keys. Messages refer to
 * `at`. */
lh_status lhi_rope_scaling_check(const lhi_doc *doc, const lhi_node *at,
                                 const lh_rope_scaling *scaling, lh_error *err);

/* Reads a Hugging Face config.json; allocates in `mem`. */
lh_status lhi_model_load(const char *path, lhi_arena *mem, lh_model *out,
                         lh_error *err);
/* Returns the norm count in a layer, without those of queries and keys. */
uint32_t lhi_model_count_norms(const lh_model *model);
/* Returns why a hybrid model's layer_pattern does not agree with its other
 * members, or NULL. */
const char *lhi_layer_pattern_check(const lh_model *model);
/* Returns the model as JSON; NULL if allocation fails. */
json_t *lhi_model_to_json(const lh_model *model);
/* Checks a model's consistency across keys: divisibility, and that the total
 * parameter count cannot overflow. Messages refer to `at`. */
lh_status lhi_model_check(const lhi_doc *doc, const lhi_node *at,
                          const lh_model *model, lh_error *err);

/* --- GPUs and clusters --- */

/* An alias for a preset; lists end with NULL. */
typedef struct lhi_alias {
    const char *name, *preset;
} lhi_alias;

/* Returns the preset for which `name` is an alias; `name` itself if it is none.
 */
const char *lhi_resolve_alias(const lhi_alias *list, const char *name);

/* The typical server for a GPU preset: GPUs per node, and the networks' rates
 * per GPU, in 10^9 bits per second and direction. */
typedef struct lhi_server {
    uint32_t gpus_per_node;
    double node_gbps, fabric_gbps;
} lhi_server;
/* Returns a GPU preset's usual server: GPUs per node and network rates. */
lhi_server lhi_gpu_find_server(const lh_gpu *preset);

/* Checks whether a GPU preset's peak rate applies to this precision. */
bool lhi_gpu_preset_supports(const char *preset, lh_precision precision);
/* Returns the rate that large 16-bit products sustain: the GPU's
 * sustained_tflops, or a fraction of its peak by one rule for all GPUs.
 * `efficiency` is the fraction on A100, for which the cost model's
 * matmul_efficiency is fitted; later GPUs cannot sustain their highest clock
 * while all matrix units are busy. */
double lhi_gpu_sustained_flops_per_s(const lh_gpu *gpu, double efficiency);
/* Returns the rate that large FP8 products sustain in FLOP/s, like
 * lhi_gpu_sustained_flops_per_s() with the same `efficiency`; 0 if the GPU has
 * none. */
double lhi_gpu_sustained_fp8_flops_per_s(const lh_gpu *gpu, double efficiency);
/* Returns the rate of experts' matrix products relative to other products.
 * Published runs show the fraction `experts` on H100 and faster GPUs. A100
 * (whose fraction of the peak is `efficiency`) is not measured; the result is
 * 1. In between it is linear in the sustained rate, with `fp8` converted to a
 * 16-bit rate. */
double lhi_gpu_experts_efficiency(double sustained_flops_per_s, bool fp8,
                                  double efficiency, double experts);
/* Returns an upper bound on the GPU's rate for any matrix product in the job,
 * in FLOP/s. */
double lhi_gpu_max_flops_per_s(const lh_gpu *gpu, lh_fp8 fp8);
/* Returns the bandwidth from a GPU to its host, one way: half the bidirectional
 * rate in NVIDIA's datasheets, times the 4/5 that long copies reach. Assumes
 * PCIe 4.0 without a preset, and PCIe 5.0 from an H100's peak on.
 */
double lhi_gpu_host_bytes_per_s(const lh_gpu *gpu);
/* Returns how many of a chunk's n_layers layers, counted from its first,
 * offload their activations to host storage: the job's share, rounded up. */
uint32_t lhi_count_offloaded_layers(const lh_job *job, uint32_t n_layers);
/* Reads the `cluster` map of a job: datacenters, links between them, and the
 * GPU and node counts. job->training.precision must be known. */
lh_status lhi_cluster_from_node(const lhi_doc *doc, const lhi_node *map,
                                lhi_arena *mem, lh_job *job, lh_error *err);

/* Checks that a datacenter's name has no characters that are special in link
 * names ("west>east") or in CSV cells. LH_EINPUT otherwise. */
lh_status lhi_check_site_name(const lhi_doc *doc, const lhi_node *node,
                              const char *name, lh_error *err);

/* A datacenter as listed in the job, with its zones: n_zones is 0 or at least
 * 2. */
typedef struct lhi_listed_site {
    lh_datacenter site;
    uint32_t n_zones;
    const char **names; /* "datacenter/zone" */
    uint32_t *nodes;
} lhi_listed_site;

/* Reads the `zones` of a datacenter whose name is known; sums their nodes. */
lh_status lhi_zones_from_node(const lhi_doc *doc, const lhi_node *map,
                              lhi_arena *mem, lhi_listed_site *out,
                              lh_error *err);
/* Splits the `n` listed datacenters into zones and fills the job's datacenters,
 * n_datacenters and wans (links). Input links: wans[from * n + to]. Messages
 * refer to `at`. */
lh_status lhi_zones_split(const lhi_doc *doc, const lhi_node *at,
                          const lhi_listed_site *listed, uint32_t n,
                          const lh_wan *wans, lhi_arena *mem, lh_job *job,
                          lh_error *err);

/* The settings' keys at a link's ends. */
extern const lhi_schema lhi_link_setting_schema;
/* A link from one datacenter to another, as in a job file. */
typedef struct lhi_job_link {
    const char *from, *to;
    lh_wan wan;
} lhi_job_link;
/* A link's keys. Its context is a double, the default price per GB. */
extern const lhi_schema lhi_job_link_schema;

/* Applies the framework preset of the job's export target (the program that
 * will train) to the settings that the job does not give. These are attention,
 * gradient type and gradient reduction. Does nothing if the job names a preset.
 * */
void lhi_framework_apply_target(lh_job *job);
/* Returns the export target (the program that will train a plan) that the
 * framework preset given in the job implies; LH_TARGET_ANY: none. */
lh_target lhi_framework_find_target(const lh_framework *framework);

/* Returns the parameter count on one GPU with the layers
 * first..first+n_layers-1: tensor parallelism divides everything except
 * experts, which expert parallelism divides. */
double lhi_layout_count_params(const lh_model *model, const lh_layout *layout,
                               uint32_t first, uint32_t n_layers);
/* Returns the parameter count on one GPU if the pipeline has one stage,
 * including multi-token prediction. */
double lhi_layout_count_all_params(const lh_model *model,
                                   const lh_layout *layout);

/* Returns Megatron-LM's padded vocabulary size. Each tensor-parallel GPU's part
 * is a multiple of *multiple: the largest one useful for matrix products, up to
 * Megatron's default of 128, that adds no padding. Multiples below 8 would slow
 * the head. */
uint32_t lhi_megatron_padded_vocab(uint32_t vocab, uint32_t tensor,
                                   uint32_t *multiple);

/* The rotary scalings that Megatron-LM builds: Llama 3.1's with
 * --use-rope-scaling, and YaRN of latent attention. Arguments set the factors
 * and mscale, with these defaults; the other numbers are fixed. */
extern const lh_rope_scaling lhi_megatron_llama3, lhi_megatron_yarn;

/* Returns the vocabulary size with `tensor`-way tensor parallelism:
 * Megatron-LM's padded size if the job targets it. */
uint32_t lhi_job_padded_vocab(const lh_job *job, uint32_t tensor);

/* Checks whether the model's layers use dropout, whose masks are then retained.
 */
bool lhi_job_uses_dropout(const lh_job *job);
/* Returns whether a model's layers use dropout if the job does not specify it:
 * true for GPT-2 and GPT-3, and for other models with layer norm, except
 * Falcon. */
bool lhi_model_uses_dropout(const lh_model *model);
/* Returns the dropout rate of the job's training, 0 to 1; 0: no dropout. */
double lhi_job_dropout(const lh_job *job);
/* Returns the experts' load-balancing loss coefficient, see lh_training;
 * 0 without experts. */
double lhi_job_balance_loss(const lh_job *job);
/* Returns the update rate of the router bias that balances experts, see
 * lh_training; 0 without experts. */
double lhi_job_balance_bias(const lh_job *job);
/* `framework`'s keys, for a job whose model, training and layout are already
 * read. */
extern const lhi_schema lhi_framework_schema;
/* Writes the `framework` map of a job, without keys that reading it sets to the
 * same value and that the file does not have; NULL if allocation fails. */
json_t *lhi_framework_to_json(const lh_job *job);
/* Reads the `framework` map of a job. */
lh_status lhi_framework_from_node(const lhi_doc *doc, const lhi_node *map,
                                  lhi_arena *mem, lh_job *job, lh_error *err);

/* --- profiles --- */

extern const lhi_schema lhi_events_schema; /* for lh_events */
extern const lhi_schema lhi_profile_schema;
/* Reads a profile from a map in a document. */
lh_status lhi_profile_from_node(const lhi_doc *doc, const lhi_node *map,
                                lhi_arena *mem, lh_profile *out, lh_error *err);
/* Returns the profile as JSON; NULL if allocation fails. */
json_t *lhi_profile_to_json(const lh_profile *profile);

/* --- jobs --- */

/* Converts a job to JSON, the value that lh_job_format() formats, for embedding
 * in a plan; NULL if allocation fails. */
json_t *lhi_job_to_json(const lh_job *job);
/* Reads a job embedded in another document. Files that it names are relative to
 * `folder`; NULL: it cannot refer to files. */
lh_status lhi_job_from_node(const lhi_doc *doc, const lhi_node *map,
                            const char *folder, lh_job **out, lh_error *err);

/* Reads the key `sites` of a layout (placement of stages and replicas in
 * datacenters), whose other keys are already read. Fills layout->sites,
 * allocated in `mem`, and derives pipeline, data and micro_batch where
 * possible. `complete`: no number may be missing. */
lh_status lhi_sites_from_node(const lhi_doc *doc, const lhi_node *list,
                              const lh_job *job, bool complete, lhi_arena *mem,
                              lh_layout *layout, lh_error *err);
/* Converts a layout's placement of stages and replicas in datacenters to JSON;
 * NULL if allocation fails. */
json_t *lhi_sites_to_json(const lh_job *job, const lh_layout *layout);

/* --- drafts --- */

/* A job template's sections supplied by another file. */
typedef struct lhi_draft_sections {
    const char *name;              /* in messages: the sections' input */
    const lhi_doc_origin *origins; /* of the values in that input */
    const lh_model *model; /* the model in `before`, to size the sites */
    const char *before;    /* the text before the cluster */
    const char *cluster;   /* its section; NULL: from the options' sites */
    const char *after;     /* the text after the cluster */
} lhi_draft_sections;

/* Writes a job template to *text, *len bytes, like lh_job_draft(), with the
 * given sections replacing its own. */
lh_status lhi_job_draft_with_sections(const lh_draft_options *options,
                                      const lhi_draft_sections *given,
                                      char **text, size_t *len, lh_error *err);
/* Checks a job template's datacenters. LH_EINPUT: too many, or an unknown GPU.
 */
lh_status lhi_draft_check_sites(const lh_draft_options *options, lh_error *err);
/* Returns a datacenter's GPUs per node in a job template; its GPU must be
 * valid. */
uint32_t lhi_draft_node_gpus(const lh_draft_site *site);
/* Returns the i-th datacenter's name in a job template: its region, or west,
 * east, north or south, or a number written to `text`. */
const char *lhi_draft_site_name(const lh_draft_site *site, uint32_t i,
                                char text[16]);
/* Appends the line `left`, "key: value", with comment `remark` to the template.
 */
void lhi_draft_add_line(lhi_text *text, const char *left, const char *remark);
LHI_PRINTF(3, 4)
/* Appends a formatted "key: value" line with comment `remark` to the template.
 */
void lhi_draft_add_value(lhi_text *text, const char *remark, const char *format,
                         ...);
/* Appends a comment "# words" that starts at column `at` to the template; long
 * comments continue on aligned lines below. */
void lhi_draft_add_comment(lhi_text *text, size_t at, const char *words);

/* The `training` and `layout` keys; NULL-terminated. */
extern const char *const lhi_training_keys[];
extern const char *const lhi_offload_keys[];
extern const char *const lhi_layout_keys[];
/* Names indexed by enum value; NULL-terminated. */
extern const char *const lhi_precision_names[];
extern const char *const lhi_optimizer_names[];
extern const char *const lhi_recompute_names[];
/* For a plan's choice: "modules" if the job lists modules. */
extern const char *const lhi_chosen_recompute_names[];
extern const char *const lhi_module_names[];
extern const char *const lhi_outermost_names[]; /* without "any" */
extern const char *const lhi_rank_order_names[];
extern const char *const lhi_packing_names[];
extern const char *const lhi_sharding_names[]; /* without "any" */
extern const char *const lhi_target_choices[]; /* with "any" */
extern const char *const lhi_dispatcher_names[];
/* Checks whether a dispatcher sends a token once to each other node with any of
 * its experts. */
static inline bool lhi_dispatches_once_per_node(lh_dispatcher dispatcher)
{
    return dispatcher == LH_DISPATCHER_DEEPEP ||
           dispatcher == LH_DISPATCHER_HYBRIDEP;
}
extern const char *const lhi_profile_kinds[];
extern const char *const lhi_profile_paths[];
/* Checks whether the GPU and model of a profile entry equal those of `like`,
 * wherever both specify them. */
bool lhi_profile_entry_matches(const lh_profile_entry *e,
                               const lh_profile_entry *like);

#endif

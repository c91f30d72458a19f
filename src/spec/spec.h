/* SPDX-License-Identifier: Apache-2.0 */
/* From files to jobs. In: the text of a job, a model or a profile. Out: lh_job,
 * lh_model, lh_profile, with every number checked, and their text again.
 *
 *   job.c, job_write.c   a job, but for its parts; job_names.c: its words;
 *                        job_draft.c: one to begin with
 *   cluster.c            its datacenters and the links between them;
 *                        link_setting.c: what their ends are set to;
 *                        zones.c: datacenters become their zones
 *   framework.c          how the program that trains behaves
 *   spec_sites.c         which datacenters have which stages of a layout
 *   model_map.c          its model; model_config.c: as config.json;
 *                        model.c: how many parameters, and what has to divide
 *   profile_file.c       what was measured
 *   whole_file.c         models and profiles that are a file of their own
 *   gpu.c, model_preset.c             GPUs and models by name
 *
 * This header is what these files share. */
#ifndef LHI_SPEC_H
#define LHI_SPEC_H

#include <longhaul/draft.h>
#include <longhaul/job.h>
#include <longhaul/model.h>
#include <longhaul/profile.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/text.h"
#include "doc/fields.h"

enum {
    LHI_MAX_LAYERS = 16384,
    LHI_MAX_WIDTH = 1 << 22, /* hidden, heads, head_dim, experts, ranks */
    LHI_MAX_VOCAB = 1 << 26, /* and of MLPs, and tokens in a sequence */
    LHI_MAX_DEGREE = 1 << 20,
    LHI_MAX_ENTRIES = 4096, /* of a profile */
    LHI_MAX_PARTS = 128,    /* of pipelines in datacenters, of one layout */
};

#define LHI_MAX_PRICE 1e9

/* --- values that are a file of their own --- */

/* Fills `value`, which is zeroed; what it points to is in `mem`. */
typedef lh_status lhi_fill_fn(const lhi_doc *doc, lhi_arena *mem, void *value,
                              lh_error *err);
/* A value of `size` bytes from a text that messages call `name`, or from a
 * file. Release *out with lhi_value_free(). */
lh_status lhi_value_parse(const char *text, size_t len, const char *name,
                          lhi_input kind, size_t size, lhi_fill_fn *fill,
                          void **out, lh_error *err);
lh_status lhi_value_read(const char *path, lhi_input kind, size_t size,
                         lhi_fill_fn *fill, void **out, lh_error *err);
void lhi_value_free(void *value); /* NULL is fine */

/* --- models --- */

/* The keys of a model as a map in a job file. */
extern const lhi_table lhi_model_table;
/* From such a map; what the model points to is in `mem`. */
lh_status lhi_model_from_map(const lhi_doc *doc, const lhi_node *map,
                             lhi_arena *mem, lh_model *out, lh_error *err);
/* Replaces what is no printable ASCII by '?': names go into JSON, and a path need
 * not be UTF-8. */
void lhi_make_plain(char *text);

/* What norms may add to the mean square. */
#define LHI_LEAST_EPSILON 1e-20
#define LHI_MOST_EPSILON 1.0

/* What a class of config.json files computes where they do not say. */
typedef struct lhi_config_class {
    const char *activation;  /* the key of it */
    const char *function;    /* which one; NULL: SiLU */
    bool rotary;             /* positions are */
    double turned;           /* the part of a head that they turn */
} lhi_config_class;

/* Sets *out to the file and those of `map`'s keys that make another model of it
 * than an lh_model says, in `mem`; NULL: there are none. */
lh_status lhi_config_uncomputed(const lhi_doc *doc, const lhi_node *map,
                                const lhi_config_class *class_has,
                                lhi_arena *mem, const char **out,
                                lh_error *err);

/* Reads a Hugging Face config.json into `mem`. */
lh_status lhi_model_load(const char *path, lhi_arena *mem, lh_model *out,
                         lh_error *err);
json_t *lhi_model_to_json(const lh_model *model);
/* What no single key shows: divisibility, and that all parameters together
 * can be counted. `at` is what messages point to. */
lh_status lhi_model_check(const lhi_doc *doc, const lhi_node *at,
                          const lh_model *model, lh_error *err);

/* --- GPUs and clusters --- */

/* Other names of presets; a list ends with a NULL. */
typedef struct lhi_alias {
    const char *name, *stands_for;
} lhi_alias;

/* What `name` stands for; itself where it is no alias. */
const char *lhi_alias_of(const lhi_alias *list, const char *name);

/* What a preset is usually sold in: GPUs of a node, and the networks of each,
 * 10^9 bits per second and direction. */
typedef struct lhi_server {
    uint32_t gpus_per_node;
    double node_gbps, fabric_gbps;
} lhi_server;
lhi_server lhi_gpu_server(const lh_gpu *preset);

/* False: the preset's peak is not of this precision. */
bool lhi_gpu_preset_has(const char *preset, lh_precision precision);
/* The share of the peak that large products reach, over A100's, on which the
 * cost model's matmul_efficiency is fitted: later GPUs cannot hold their
 * highest clock while all their matrix units work. 1 without preset. */
double lhi_gpu_sustained(const lh_gpu *gpu);
/* The same of fp8_tflops. */
double lhi_gpu_fp8_sustained(const lh_gpu *gpu);
/* Whether experts' products reach less than others on it, as runs tell of
 * presets with products in 8 bits; of others none does. */
bool lhi_gpu_slows_experts(const lh_gpu *gpu);
/* What no product of the job can be faster than on it. */
double lhi_gpu_most_flops_per_s(const lh_gpu *gpu, lh_fp8 fp8);
/* From a GPU to its host, one way: what NVIDIA's datasheets give for both ways
 * halved, of which long copies reach about four fifths. GPUs without preset are
 * taken to have PCIe 4.0. */
double lhi_gpu_host_bytes_per_s(const lh_gpu *gpu);
/* How many of a chunk's layers, its first ones, have activations that go to the
 * host's storage. */
uint32_t lhi_offload_layers(const lh_job *job, uint32_t n_layers);
/* Fills n_datacenters, datacenters, wans, n_gpus and n_nodes; the precision is
 * known already. */
lh_status lhi_cluster_from_node(const lhi_doc *doc, const lhi_node *map,
                                lhi_arena *mem, lh_job *job, lh_error *err);

/* Whether links can be called by it: LH_EINPUT says why not. */
lh_status lhi_check_site_name(const lhi_doc *doc, const lhi_node *node,
                              const char *name, lh_error *err);

/* A datacenter as the job lists it, with the zones that it has: n_zones 0 or at
 * least 2. */
typedef struct lhi_listed_site {
    lh_datacenter site;
    uint32_t n_zones;
    const char **names; /* "datacenter/zone" */
    uint32_t *nodes;
} lhi_listed_site;

/* `zones` of a datacenter whose name is known; its nodes are then theirs. */
lh_status lhi_zones_from_node(const lhi_doc *doc, const lhi_node *map,
                              lhi_arena *mem, lhi_listed_site *out,
                              lh_error *err);
/* Fills in the job's datacenters, n_datacenters and wans from those listed and
 * the links between them, wans[from * n + to]. `at` is what messages point to.
 */
lh_status lhi_zones_spread(const lhi_doc *doc, const lhi_node *at,
                           const lhi_listed_site *listed, uint32_t n,
                           const lh_wan *wans, lhi_arena *mem, lh_job *job,
                           lh_error *err);

/* What the ends of a link are set to, and the link from one datacenter to
 * another as a job has it. */
extern const lhi_table lhi_link_setting_table;
typedef struct lhi_job_link {
    const char *from, *to;
    lh_wan wan;
} lhi_job_link;
/* Its context is the price of a GB where the link has none: a double. */
extern const lhi_table lhi_job_link_table;

/* What the program that runs the plan does by itself; not where the job says
 * how its own behaves. */
void lhi_framework_of_target(lh_job *job);

/* Parameters of a GPU that has these layers: tensor parallelism cuts all but
 * experts, which their own group shares. */
double lhi_layout_params(const lh_model *model, const lh_layout *layout,
                         uint32_t first, uint32_t n_layers);
/* And of one that has the whole model, multi-token prediction too. */
double lhi_layout_all_params(const lh_model *model, const lh_layout *layout);

/* How many words Megatron-LM makes of `vocab`: a multiple of *multiple for each
 * GPU that shares them, which is as many as products of matrices want, up to
 * its default of 128, that add no word. Fewer than 8 would slow the head. */
uint32_t lhi_megatron_words(uint32_t vocab, uint32_t tensor,
                            uint32_t *multiple);

/* Words that there are where `tensor` GPUs share them: Megatron-LM's own, in a
 * job for it. */
uint32_t lhi_job_words(const lh_job *job, uint32_t tensor);

/* Whether layers drop activations and keep the masks. */
bool lhi_job_drops(const lh_job *job);
/* Where the job does not say. */
bool lhi_model_drops(const lh_model *model);
/* How many of them: a share; 0: none. */
double lhi_job_dropout(const lh_job *job);
/* What balances experts: see lh_training. 0 without experts. */
double lhi_job_balance_loss(const lh_job *job);
double lhi_job_balance_bias(const lh_job *job);
/* `framework` of a job whose model, training and layout are read already. */
extern const lhi_table lhi_framework_table;
lh_status lhi_framework_from_node(const lhi_doc *doc, const lhi_node *map,
                                  lhi_arena *mem, lh_job *job, lh_error *err);

/* --- profiles --- */

extern const lhi_table lhi_events_table; /* lh_events */
extern const lhi_table lhi_profile_table;
lh_status lhi_profile_from_node(const lhi_doc *doc, const lhi_node *map,
                                lhi_arena *mem, lh_profile *out, lh_error *err);
json_t *lhi_profile_to_json(const lh_profile *profile);

/* --- jobs --- */

/* The value of lh_job_format(), for a plan to embed. NULL: no memory. */
json_t *lhi_job_to_json(const lh_job *job);
/* A job that stands in another document (it names no files). */
lh_status lhi_job_from_node(const lhi_doc *doc, const lhi_node *map,
                            const char *folder, lh_job **out, lh_error *err);

/* `sites` of a layout whose other keys are read already: fills in
 * layout->sites, which is in `mem`, and pipeline and data where these follow
 * from it. `complete`: every number has to be there. */
lh_status lhi_sites_from_node(const lhi_doc *doc, const lhi_node *list,
                              const lh_job *job, bool complete, lhi_arena *mem,
                              lh_layout *layout, lh_error *err);
json_t *lhi_sites_to_json(const lh_job *job, const lh_sites *sites);

/* --- drafts --- */

/* What another file says of a job to begin with. */
typedef struct lhi_draft_given {
    const char *name;      /* as messages call the job */
    const lh_model *model; /* which `before` has: sites are to hold it */
    const char *before;    /* the text down to the cluster */
    const char *cluster;   /* its section; NULL: of the options' sites */
    const char *behind;    /* the text from there on */
} lhi_draft_given;

/* As lh_job_draft(), but for what is given. */
lh_status lhi_job_draft_given(const lh_draft_options *options,
                              const lhi_draft_given *given, char **text,
                              size_t *len, lh_error *err);
/* LH_EINPUT: too many, or a GPU that nobody knows. */
lh_status lhi_draft_check_sites(const lh_draft_options *options, lh_error *err);
/* GPUs of a node of it; its GPU is known. */
uint32_t lhi_draft_node_gpus(const lh_draft_site *site);
const char *lhi_draft_site_name(uint32_t i, char text[16]);
/* "key: value", which `left` is, and what is to be known of it. */
void lhi_draft_line(lhi_text *text, const char *left, const char *remark);
LHI_PRINTF(3, 4)
void lhi_draft_value(lhi_text *text, const char *remark, const char *format,
                     ...);
/* `words` behind "# ", from column `at`, further lines below it. */
void lhi_draft_remark(lhi_text *text, size_t at, const char *words);

/* The keys of `training` and `layout`; NULL-terminated. */
extern const char *const lhi_training_keys[];
extern const char *const lhi_offload_keys[];
extern const char *const lhi_layout_keys[];
/* NULL-terminated names, by value of the enum. */
extern const char *const lhi_precision_names[];
extern const char *const lhi_optimizer_names[];
extern const char *const lhi_recompute_names[];
/* Of a plan's choice: where the job names modules, "modules". */
extern const char *const lhi_chosen_recompute_names[];
extern const char *const lhi_module_names[];
extern const char *const lhi_outermost_names[]; /* without "any" */
extern const char *const lhi_sharding_names[];  /* without "any" */
extern const char *const lhi_target_names[];    /* without "any" */
extern const char *const lhi_dispatcher_names[];
extern const char *const lhi_profile_kinds[];
extern const char *const lhi_profile_paths[];
/* An entry's GPU and model are those of `like`, where both are named. */
bool lhi_profile_suits(const lh_profile_entry *e, const lh_profile_entry *like);

#endif

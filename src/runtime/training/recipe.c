/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/training/recipe.h"

#include "base/fail.h"
#include "runtime/training/train_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest value of an option: steps are whole numbers, exact in a double. */
#define MOST_OPTION 9007199254740992.0

/* Names: as of the program's options, or keys of the job. */
static const char *const names[LHI_N_RECIPE_OPTIONS] = {
    [LHI_RECIPE_STEPS] = "steps",
    [LHI_RECIPE_RATE] = "rate",
    [LHI_RECIPE_MIN_RATE] = "min-rate",
    [LHI_RECIPE_WARMUP] = "warmup",
    [LHI_RECIPE_WEIGHT_DECAY] = "weight-decay",
    [LHI_RECIPE_CLIP] = "clip",
    [LHI_RECIPE_BETA1] = "beta1",
    [LHI_RECIPE_BETA2] = "beta2",
    [LHI_RECIPE_EPSILON] = "epsilon",
    [LHI_RECIPE_RATE_DECAY] = "rate-decay",
    [LHI_RECIPE_DECAY_STEPS] = "decay-steps",
    [LHI_RECIPE_DROPOUT] = "dropout",
    [LHI_RECIPE_BALANCE_LOSS] = "balance_loss",
    [LHI_RECIPE_BALANCE_BIAS] = "balance_bias",
    [LHI_RECIPE_EXPERT_CAPACITY] = "expert_capacity",
    [LHI_RECIPE_BF16] = "bf16",
};

/* Values of options that older checkpoints lack: the only ones at that time. */
static const double older_values[LHI_N_RECIPE_OPTIONS] = {
    [LHI_RECIPE_BETA1] = 0.9,
    [LHI_RECIPE_BETA2] = 0.95,
    [LHI_RECIPE_EPSILON] = 1e-8,
};

/* Checks whether a recipe option (a training option that a resumed run must
 * repeat) is newer than the format, so that old checkpoints may lack it. */
static bool is_recent(uint32_t option)
{
    return option >= LHI_RECIPE_BETA1 && option <= LHI_RECIPE_DECAY_STEPS;
}

/* Returns the number of the recipe option (training option that a resumed run
 * must repeat) with a name of `len` bytes; LHI_N_RECIPE_OPTIONS: none. */
static uint32_t find_option(const char *name, size_t len)
{
    uint32_t i = 0;
    while (i < LHI_N_RECIPE_OPTIONS &&
           (strlen(names[i]) != len || strncmp(names[i], name, len) != 0))
        i++;
    return i;
}

lh_status lhi_recipe_parse_names(const char *list, uint32_t *out, lh_error *err)
{
    *out = 0;
    for (const char *at = list; at;) {
        size_t len = strcspn(at, ",");
        uint32_t option = find_option(at, len);
        if (option == LHI_N_RECIPE_OPTIONS) {
            char all[320] = "";
            for (uint32_t i = 0; i < LHI_N_RECIPE_OPTIONS; i++)
                snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
                         i > 0 ? ", " : "", names[i]);
            return lhi_fail(err, LH_EINVAL,
                            "'%.*s' is not an option that a resumed run can "
                            "override: use %s",
                            (int)(len < 40 ? len : 40), at, all);
        }
        *out |= 1u << option;
        at = at[len] == ',' ? at + len + 1 : NULL;
    }
    return LH_OK;
}

/* Formats a fingerprint of the data as 16 hexadecimal digits. */
static void format_fingerprint(uint64_t value, char out[17])
{
    snprintf(out, 17, "%016" PRIx64, value);
}

/* Formats the data settings that a resumed run must repeat as a JSON object:
 * batch, sequence, seed, validation share, delayed update and data fingerprint.
 * NULL: out of memory. */
static json_t *format_data(const lhi_recipe *r)
{
    char fingerprint[17];
    format_fingerprint(r->data, fingerprint);
    return json_pack("{s:I, s:I, s:I, s:f, s:b, s:s}", "global_batch",
                     (json_int_t)r->global_batch, "sequence",
                     (json_int_t)r->sequence, "seed", (json_int_t)r->seed,
                     "validation", r->validation, "delayed_update",
                     (int)r->delayed_update, "fingerprint", fingerprint);
}

/* Formats the recipe's training options (steps, learning rates, clipping and
 * others) as a JSON object; NULL: out of memory. */
static json_t *format_options(const lhi_recipe *r)
{
    json_t *all = json_object();
    for (uint32_t i = 0; all && i < LHI_N_RECIPE_OPTIONS; i++)
        if (json_object_set_new(all, names[i], json_real(r->options[i])) != 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

/* Sets the run's identity to a checksum over the model, data and options in
 * `root`, a checkpoint's description; false: out of memory. */
static bool make_id(lhi_recipe *recipe, const json_t *root)
{
    json_t *of =
        json_pack("{s:O, s:O, s:O}", "model", json_object_get(root, "model"),
                  "data", json_object_get(root, "data"), "options",
                  json_object_get(root, "options"));
    char *text = of ? json_dumps(of, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(of);
    if (!text)
        return false;
    snprintf(recipe->run.id, sizeof recipe->run.id, "%0*" PRIx64, LHI_RUN_ID,
             (uint64_t)lhi_checksum(text, strlen(text)));
    free(text);
    return true;
}

bool lhi_recipe_format(lhi_recipe *recipe, json_t *root)
{
    return json_object_set_new(root, "data", format_data(recipe)) == 0 &&
           json_object_set_new(root, "options", format_options(recipe)) == 0 &&
           (recipe->run.id[0] || make_id(recipe, root)) &&
           json_object_set_new(root, "run",
                               json_pack("{s:s, s:s}", "id", recipe->run.id,
                                         "name", recipe->run.name)) == 0;
}

/* Formats a JSON number, boolean or string for an error message; "nothing" for
 * a missing value. */
static void format_value(const json_t *value, char out[64])
{
    snprintf(out, 64, "nothing");
    if (json_is_integer(value))
        snprintf(out, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(out, 64, "%.9g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(out, 64, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_string(value))
        snprintf(out, 64, "%s", json_string_value(value));
}

/* Compares option `key`'s value in the checkpoint (`written`) with this run's
 * (`mine`). LH_EINPUT: they differ; the message has `file`, both values and
 * `advice`. */
static lh_status check_value(const char *key, const json_t *written,
                             const json_t *mine, const char *advice,
                             const char *file, lh_error *err)
{
    char both[2][64];
    if (json_equal(written, mine))
        return LH_OK;
    format_value(written, both[0]);
    format_value(mine, both[1]);
    return lhi_fail(err, LH_EINPUT,
                    "%s: data.%s: the checkpoint's run has %s, this run %s: %s",
                    file, key, both[0], both[1], advice);
}

/* Checks whether a checkpoint's data settings `written` have the fingerprint
 * that older versions compute of this run's data: of samples only. */
static bool has_sampled_fingerprint(const lhi_recipe *r, const json_t *written)
{
    const char *text =
        json_string_value(json_object_get(written, "fingerprint"));
    char sampled[17];
    format_fingerprint(r->sampled_data, sampled);
    return text && strcmp(text, sampled) == 0;
}

/* Checks that data, seed, batch and validation share in a checkpoint's
 * description, `root`, equal this run's; a resumed run may not change them.
 * LH_EINPUT: one differs. */
static lh_status check_data(const lhi_recipe *r, const json_t *root,
                            const char *file, lh_error *err)
{
    const struct {
        const char *key, *advice;
    } rows[] = {
        {"global_batch", "plan with the same training.global_batch"},
        {"sequence", "plan with the same training.sequence"},
        {"seed", "give the same --seed"},
        {"validation", "give the same --validation"},
        {"delayed_update",
         r->delayed_update ? "omit --delayed-update" : "give --delayed-update"},
        {"fingerprint", "give the same --data, --format and --tokenizer"},
    };
    const json_t *written = json_object_get(root, "data");
    const size_t n_rows = sizeof rows / sizeof *rows -
                          (has_sampled_fingerprint(r, written) ? 1 : 0);
    json_t *mine = format_data(r);
    lh_status status = mine ? LH_OK : lhi_fail_nomem(err);
    for (size_t i = 0; status == LH_OK && i < n_rows; i++)
        status = check_value(rows[i].key, json_object_get(written, rows[i].key),
                             json_object_get(mine, rows[i].key), rows[i].advice,
                             file, err);
    json_decref(mine);
    return status;
}

lh_status lhi_recipe_adopt(lhi_recipe *recipe, const json_t *root,
                           const char *file, lh_error *err)
{
    const json_t *options = json_object_get(root, "options");
    LHI_TRY(check_data(recipe, root, file, err));
    for (uint32_t i = 0; i < LHI_N_RECIPE_OPTIONS; i++) {
        const json_t *value = json_object_get(options, names[i]);
        const bool is_older = !value && is_recent(i);
        double written = is_older ? older_values[i] : json_number_value(value);
        double mine = recipe->options[i];
        bool differs = written < mine || written > mine;
        if (recipe->overridden >> i & 1) {
            if (recipe->given >> i & 1 || i == LHI_RECIPE_STEPS)
                continue;
            return lhi_fail(err, LH_EINPUT,
                            "--override %s requires --%s: a resumed run "
                            "continues with the checkpoint's, %.9g",
                            names[i], names[i], written);
        }
        if ((!is_older && !json_is_number(value)) || written < 0 ||
            written > MOST_OPTION)
            return lhi_fail(err, LH_EINPUT,
                            "%s: options.%s: expected a number from 0 to 2^53; "
                            "resume from another checkpoint",
                            file, names[i]);
        if (differs && recipe->given >> i & 1)
            return lhi_fail(
                err, LH_EINPUT,
                "%s: %s: the checkpoint's run has %.9g, this run %.9g: %s, or "
                "change it with --override %s",
                file, names[i], written, mine,
                i < LHI_RECIPE_DROPOUT ? "omit the option to continue with the "
                                         "checkpoint's"
                                       : "plan with the same training options",
                names[i]);
        recipe->options[i] = written;
    }
    recipe->run = lhi_recipe_read_run(root);
    return LH_OK;
}

lhi_run_identity lhi_recipe_read_run(const json_t *root)
{
    const json_t *run = json_object_get(root, "run");
    const char *id = json_string_value(json_object_get(run, "id"));
    const char *name = json_string_value(json_object_get(run, "name"));
    lhi_run_identity out = {.id = ""};
    snprintf(out.id, sizeof out.id, "%s", id ? id : "");
    snprintf(out.name, sizeof out.name, "%s", name ? name : "");
    return out;
}

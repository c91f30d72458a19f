/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint folder belongs to one run: otherwise a run that resumes could
 * continue with a checkpoint of another one. */
#define _POSIX_C_SOURCE 200809L /* stat */
#include "base/fail.h"
#include "base/input_limits.h"
#include "base/json_input.h"
#include "base/text.h"
#include "runtime/training/train_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Checks whether two paths lead to the same folder (same device and inode). */
static bool is_same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Returns the identity of the run that wrote checkpoint `step` in `folder`;
 * empty: unknown. */
static lhi_run_identity read_owner(const char *folder, uint64_t step)
{
    char path[LHI_PATH], *text;
    size_t len;
    lhi_run_identity run = {.id = ""};
    if (lhi_folder_path(path, NULL, "%s/" LHI_STEP_FOLDER "/" LHI_STATE_FILE,
                        folder, step) != LH_OK ||
        lhi_input_read(path, LHI_INPUT_STATE, &text, &len, NULL) != LH_OK)
        return run;
    json_error_t why;
    json_t *root = lhi_json_load(text, len, JSON_REJECT_DUPLICATES, &why);
    lh_text_free(text);
    if (root)
        run = lhi_recipe_read_run(root);
    json_decref(root);
    return run;
}

/* Fails with LH_EINPUT: the folder has checkpoint `step` of another run,
 * `owner` (is_foreign), or of this run but later than the step from which it
 * resumes. */
static lh_status fail_claimed(const lhi_folder_claim *claim, uint64_t step,
                              const lhi_run_identity *owner, bool is_foreign,
                              lh_error *err)
{
    if (!is_foreign)
        return lhi_fail(err, LH_EINPUT,
                        "%.150s: has a checkpoint of step %" PRIu64
                        ", later than step %" PRIu64
                        ", from which this run resumes: discard it with "
                        "--fresh, or choose another folder",
                        claim->folder, step, claim->begin);
    return lhi_fail(
        err, LH_EINPUT,
        "%.150s: belongs to the run %.*s (model %.*s), whose "
        "newest checkpoint is of step %" PRIu64
        ": continue it with --resume %.150s, discard its "
        "checkpoints with --fresh, or choose another folder",
        claim->folder, LHI_RUN_ID, owner->id[0] ? owner->id : "unknown", 40,
        owner->name[0] ? owner->name : "unknown", step, claim->folder);
}

lh_status lhi_folder_claim_check(const lhi_folder_claim *claim,
                                 uint64_t **discarded, size_t *n_discarded,
                                 lh_error *err)
{
    uint64_t *steps;
    size_t n, n_gone = 0;
    lh_status status = LH_OK;
    const bool skipped_damaged = is_same_folder(claim->folder, claim->resume);
    LHI_TRY(lhi_list_steps(claim->folder, &steps, &n, err));
    for (size_t i = n; status == LH_OK && i > 0; i--) {
        const uint64_t step = steps[i - 1];
        const lhi_run_identity owner = read_owner(claim->folder, step);
        bool is_foreign = !claim->run || !owner.id[0] ||
                          strcmp(owner.id, claim->run->id) != 0;
        bool is_later = step > claim->begin;
        if (skipped_damaged && (is_later || !owner.id[0]))
            continue;
        if (!is_foreign && !is_later)
            continue;
        if (claim->fresh)
            steps[n - ++n_gone] = step;
        else
            status = fail_claimed(claim, step, &owner, is_foreign, err);
    }
    if (status != LH_OK) {
        free(steps);
        return status;
    }
    memmove(steps, steps + (n - n_gone), n_gone * sizeof *steps);
    *discarded = steps;
    *n_discarded = n_gone;
    return LH_OK;
}

/* Formats the path of checkpoint `step` in `folder` into `out`; `prefix`
 * precedes its name, as in ".old-step-00000020". */
static lh_status format_path(const char *folder, const char *prefix,
                             uint64_t step, char *out, lh_error *err)
{
    return lhi_folder_path(out, err, "%s/%s" LHI_STEP_FOLDER, folder, prefix,
                           step);
}

/* Renames checkpoint `step` to its ".old-" name before it is removed, so that a
 * partly removed one is not taken for a checkpoint. */
static lh_status rename_old(const char *folder, uint64_t step, lh_error *err)
{
    char path[LHI_PATH], gone[LHI_PATH];
    LHI_TRY(format_path(folder, "", step, path, err));
    LHI_TRY(format_path(folder, ".old-", step, gone, err));
    lhi_checkpoint_remove(gone);
    if (rename(path, gone) != 0)
        lhi_checkpoint_remove(path); /* files with that name block the rename */
    return LH_OK;
}

lh_status lhi_checkpoint_discard(const char *folder, const uint64_t *steps,
                                 size_t n, lh_error *err)
{
    char gone[LHI_PATH];
    for (size_t i = 0; i < n; i++)
        LHI_TRY(rename_old(folder, steps[i], err));
    if (n > 0)
        LHI_TRY(lhi_sync_folder(folder, err));
    for (size_t i = 0; i < n; i++) {
        LHI_TRY(format_path(folder, ".old-", steps[i], gone, err));
        lhi_checkpoint_remove(gone);
    }
    return LH_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a folder with all files that start a job. */
#define _GNU_SOURCE /* renameat2 */
#include "interop/export/bundle.h"

#include "base/options.h"
#include "base/temp_file.h"

#include <longhaul/experimental/export.h>
#include <longhaul/experimental/status.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MASTER_PORT = 29500 }; /* torchrun's default */

/* A file in the folder. */
typedef struct bundle_file {
    char *name, *text; /* owned */
    size_t len;
    bool is_program;
} bundle_file;

/* A bundle's files. */
typedef struct bundle_files {
    uint32_t n;
    bundle_file files[LH_MAX_DATACENTERS + 8];
} bundle_files;

/* Frees a bundle's file names and texts, and the list itself. */
static void free_bundle_files(bundle_files *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        lh_text_free(all->files[i].name);
        lh_text_free(all->files[i].text);
    }
    free(all);
}

/* Adds a file called `name` with the contents `text` to the bundle `all`. Takes
 * ownership of `text`, also on failure. */
static lh_status add_file(bundle_files *all, const char *name, char *text,
                          size_t len, lh_error *err)
{
    bundle_file *file = &all->files[all->n++];
    lhi_text copy = {0};
    *file = (bundle_file){.text = text, .len = len};
    lhi_text_puts(&copy, name);
    return lhi_text_take(&copy, &file->name, NULL, err);
}

/* Adds a file called `name` to the bundle `all`, with the text built in `text`,
 * which it takes over. */
static lh_status add_text(bundle_files *all, const char *name, lhi_text *text,
                          lh_error *err)
{
    char *bytes;
    size_t len;
    LHI_TRY(lhi_text_take(text, &bytes, &len, err));
    return add_file(all, name, bytes, len, err);
}

/* --- files for the target ------------------------------------------------- */

/* Writes the target's arguments or recipe into the bundle. *remarks receives a
 * copy of the comment lines in it. */
static lh_status add_arguments(bundle_files *all, const lhi_bundle *b,
                               char **remarks, lh_error *err)
{
    char *text;
    size_t len;
    lhi_text out = {0};
    LHI_TRY(b->form->write(b->plan, &text, &len, err));
    LHI_TRY(add_file(all, b->form->file_name, text, len, err));
    lhi_export_copy_comments(&out, text);
    lhi_text_puts(&out, "");
    return lhi_text_take(&out, remarks, NULL, err);
}

/* Adds schedule.csv in form `form` (with or without communication actions), and
 * stages.json with each stage's modules. Sets b->cost_ns, the time that the
 * schedule loses because PyTorch lacks features. */
static lh_status add_schedule(bundle_files *all, lhi_bundle *b,
                              lh_pytorch_form form, lh_error *err)
{
    char *text;
    size_t len;
    LHI_TRY(lh_export_pytorch(b->plan->pipeline, b->plan->schedule, form, &text,
                              &len, &b->cost_ns, err));
    LHI_TRY(add_file(all, "schedule.csv", text, len, err));
    LHI_TRY(lh_export_stages(b->plan, &text, &len, err));
    return add_file(all, "stages.json", text, len, err);
}

/* Adds the Python module that builds the model in torchtitan to the bundle
 * `all`. */
static lh_status add_model(bundle_files *all, const lhi_bundle *b,
                           lh_error *err)
{
    const lhi_export_form *form =
        lhi_export_form_of(LH_EXPORT_TORCHTITAN_MODEL);
    char *text;
    size_t len;
    LHI_TRY(form->write(b->plan, &text, &len, err));
    return add_file(all, form->file_name, text, len, err);
}

/* Adds the plan's file to the bundle `all`; the Python module longhaul.megatron
 * reads it at start-up. */
static lh_status add_plan(bundle_files *all, const lhi_bundle *b, lh_error *err)
{
    char *text;
    size_t len;
    LHI_TRY(lh_plan_format(b->plan, &text, &len, err));
    return add_file(all, "plan.json", text, len, err);
}

/* Adds the files that the target program reads: its arguments or recipe, whose
 * comment lines go to *remarks, and the schedule if it takes one.
 * LH_EUNSUPPORTED: the target is not a training program, or cannot run the
 * plan. */
static lh_status add_target(bundle_files *all, lhi_bundle *b,
                            lh_pytorch_form form, char **remarks, lh_error *err)
{
    if (!b->form->program)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "%s is not a training program; a bundle supports "
                        "pytorch, torchtitan, megatron or megatron-bridge",
                        b->form->name);
    if (b->form->write)
        LHI_TRY(add_arguments(all, b, remarks, err));
    else
        LHI_TRY(lhi_export_check(b->plan, b->form->planner_target, err));
    if (b->target == LH_EXPORT_TORCHTITAN)
        LHI_TRY(add_model(all, b, err));
    if (b->has_plan)
        LHI_TRY(add_plan(all, b, err));
    if (!b->form->has_schedule)
        return LH_OK;
    /* Targets whose arguments name a schedule class read compute-only CSV
     * files. */
    return add_schedule(all, b, b->form->write ? LH_PYTORCH_COMPUTE_ONLY : form,
                        err);
}

/* --- launch files --------------------------------------------------------- */

/* Adds a host file hosts-SITE.txt, with placeholder host names, to the bundle
 * for each datacenter that the plan uses. */
static lh_status add_hosts(bundle_files *all, const lhi_bundle *b,
                           lh_error *err)
{
    for (uint32_t d = 0; d < b->plan->job->n_datacenters; d++) {
        lhi_text name = {0}, text = {0};
        char *path;
        if (b->launches->n_hosts[d] == 0)
            continue;
        lhi_text_puts(&name, "hosts-");
        lhi_bundle_add_site_name(&name, b->plan, d);
        lhi_text_puts(&name, ".txt");
        LHI_TRY(lhi_text_take(&name, &path, NULL, err));
        lhi_bundle_add_hosts(&text, b->plan, b->launches, d);
        lh_status status = add_text(all, path, &text, err);
        lh_text_free(path);
        LHI_TRY(status);
    }
    return LH_OK;
}

/* Adds the host files, nodes.txt (ranks per host), launch.sh, job.sbatch and
 * README.md to the bundle `all`. */
static lh_status add_scripts(bundle_files *all, const lhi_bundle *b,
                             lh_error *err)
{
    lhi_text text = {0};
    LHI_TRY(add_hosts(all, b, err));
    lhi_bundle_add_nodes(&text, b->plan, b->launches);
    LHI_TRY(add_text(all, "nodes.txt", &text, err));
    lhi_bundle_add_launch_script(&text, b);
    LHI_TRY(add_text(all, "launch.sh", &text, err));
    all->files[all->n - 1].is_program = true;
    lhi_bundle_add_sbatch_script(&text, b);
    LHI_TRY(add_text(all, "job.sbatch", &text, err));
    lhi_bundle_add_readme(&text, b);
    return add_text(all, "README.md", &text, err);
}

/* Generates in memory all files of a bundle, without writing them. */
static lh_status make_files(bundle_files *all, lhi_bundle *b,
                            lh_pytorch_form form, lh_error *err)
{
    lhi_launches launches = {0};
    char *remarks = NULL;
    lh_status status = add_target(all, b, form, &remarks, err);
    if (status == LH_OK)
        status = lhi_launches_compute(b->plan, &launches, err);
    b->launches = &launches;
    b->remarks = remarks ? remarks : "";
    if (status == LH_OK)
        status = add_scripts(all, b, err);
    lhi_launches_fini(&launches);
    lh_text_free(remarks);
    return status;
}

/* --- folder --------------------------------------------------------------- */

/* Fails with LH_EIO: `path` exists already (`cause` is EEXIST), or it cannot be
 * created because of errno value `cause`. */
static lh_status fail_to_create_path(const char *path, int cause, lh_error *err)
{
    if (cause == EEXIST || cause == ENOTEMPTY || cause == ENOTDIR)
        return lhi_fail(err, LH_EIO,
                        "%s: already exists; a bundle never overwrites a "
                        "folder. Use another name, or remove it",
                        path);
    return lhi_fail(err, LH_EIO, "%s: cannot write: %s", path, strerror(cause));
}

/* The temporary folder under construction. */
typedef struct unfinished {
    char *folder;
    char *file; /* capacity for any path in it */
    size_t room;
} unfinished;

/* Creates an empty temporary folder beside `path`, and allocates space for the
 * bundle's file paths in it. */
static lh_status create_temporary_folder(const char *path,
                                         const bundle_files *all,
                                         unfinished *out, lh_error *err)
{
    size_t longest = 0, room = strlen(path) + LHI_TEMP_SUFFIX_BYTES;
    for (uint32_t i = 0; i < all->n; i++)
        longest = strlen(all->files[i].name) > longest
                      ? strlen(all->files[i].name)
                      : longest;
    out->room = room + longest + 1;
    out->folder = malloc(room);
    out->file = malloc(out->room);
    if (!out->folder || !out->file)
        return lhi_fail_nomem(err);
    int cause = EEXIST;
    for (unsigned attempt = 0; attempt < 1000 && cause == EEXIST; attempt++) {
        lhi_temp_file_format_name(path, attempt, out->folder, room);
        cause = mkdir(out->folder, 0777) == 0 ? 0 : errno;
    }
    if (!cause)
        return LH_OK;
    return lhi_fail(err, LH_EIO, "%s: cannot create the folder: %s", path,
                    strerror(cause));
}

/* Writes a file of the bundle into the temporary folder, and makes it
 * executable if it is a script. */
static lh_status write_file(const unfinished *u, const bundle_file *file,
                            lh_error *err)
{
    struct stat info;
    snprintf(u->file, u->room, "%s/%s", u->folder, file->name);
    LHI_TRY(lh_file_write(u->file, file->text, file->len, err));
    if (file->is_program &&
        (stat(u->file, &info) != 0 ||
         chmod(u->file, (info.st_mode & 0777) | (info.st_mode & 0444) >> 2) !=
             0))
        return fail_to_create_path(u->file, errno, err);
    return LH_OK;
}

/* Deletes the temporary folder and the bundle's files in it, after a failure.
 * Allocates nothing, because memory may have run out. */
static void remove_temporary_folder(const unfinished *u,
                                    const bundle_files *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        snprintf(u->file, u->room, "%s/%s", u->folder, all->files[i].name);
        unlink(u->file);
    }
    rmdir(u->folder);
}

/* Renames the finished folder `from` to `to`, without replacing an existing one
 * if the file system can guarantee that. Returns nonzero with errno set on
 * failure. */
static int move_folder(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    return errno == EINVAL || errno == ENOSYS ? rename(from, to) : -1;
}

/* Writes all files into a temporary folder and renames it to `path`. On failure
 * removes the temporary folder.
 * LH_EIO: `path` exists or cannot be written. */
static lh_status write_folder(const char *path, const bundle_files *all,
                              lh_error *err)
{
    struct stat info;
    unfinished u = {0};
    if (lstat(path, &info) == 0)
        return fail_to_create_path(path, EEXIST, err);
    lh_status status = create_temporary_folder(path, all, &u, err);
    if (status == LH_OK) {
        for (uint32_t i = 0; i < all->n && status == LH_OK; i++)
            status = write_file(&u, &all->files[i], err);
        if (status == LH_OK && move_folder(u.folder, path) != 0)
            status = fail_to_create_path(path, errno, err);
        if (status != LH_OK)
            remove_temporary_folder(&u, all);
    }
    free(u.folder);
    free(u.file);
    return status;
}

/* Returns a copy of a path without trailing slashes, which the caller frees;
 * NULL if memory runs out. */
static char *copy_without_slashes(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    char *copy = malloc(len + 1);
    if (copy) {
        memcpy(copy, path, len);
        copy[len] = '\0';
    }
    return copy;
}

lh_status lh_export_bundle(const lh_plan *plan, lh_export_target target,
                           const char *path, const lh_bundle_options *options,
                           lh_error *err)
{
    lh_bundle_options o;
    LHI_TRY(LHI_OPTIONS_COPY(lh_bundle_options, &o, options, err));
    if (!lh_export_target_name(target))
        return lhi_fail(err, LH_EINVAL, "unknown export target %d",
                        (int)target);
    if (!*path)
        return lhi_fail(err, LH_EIO, "a bundle requires a folder name");
    LHI_TRY(lhi_export_check_inexact(
        plan, target, lhi_export_display_name(target), o.allow_inexact, err));
    lhi_bundle b = {.plan = plan,
                    .target = target,
                    .form = lhi_export_form_of(target),
                    .has_plan = target == LH_EXPORT_MEGATRON &&
                                lhi_megatron_needs_runtime(plan),
                    .port = o.port ? o.port : MASTER_PORT};
    bundle_files *all = calloc(1, sizeof *all);
    char *folder = copy_without_slashes(path);
    lh_status status =
        all && folder ? make_files(all, &b, o.form, err) : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = write_folder(folder, all, err);
    if (all)
        free_bundle_files(all);
    free(folder);
    return status;
}

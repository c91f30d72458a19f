/* SPDX-License-Identifier: Apache-2.0 */
#include "imported.h"

#include "inputs.h"
#include "problem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 1 << 20 };

const char *cli_source_name(uint32_t i)
{
    return lh_import_source_name((lh_import_source)i);
}

/* Of --cluster's machines nothing else is said. */
static const char *const machine_options[] = {
    "gpu", "sites", "nodes", "gpus-per-node", "link-gbps", "latency-ms", NULL};

const char *cli_source_given(const cli *c)
{
    if (cli_given(c, "cluster"))
        return "cluster";
    for (uint32_t i = 0; machine_options[i]; i++)
        if (cli_given(c, machine_options[i]))
            return machine_options[i];
    return NULL;
}

static lh_status read_cluster(cli *c, const char *path, lh_job **out)
{
    cli_input input;
    for (uint32_t i = 0; machine_options[i]; i++)
        if (cli_given(c, machine_options[i]))
            return cli_usage(c,
                             "--%s does nothing beside --cluster, which says "
                             "what machines there are",
                             machine_options[i]);
    lh_status status = cli_input_open(c, path, &input);
    if (status == LH_OK && cli_input_is_other(&input, "job"))
        status = cli_error(c, LH_EINPUT, "%s: --cluster takes a job", path);
    if (status == LH_OK)
        status = cli_input_job(c, &input, out);
    cli_input_close(&input);
    return status;
}

/* A list of arguments has spaces, or begins with one of them. */
static bool is_list(const char *operand)
{
    struct stat info;
    return stat(operand, &info) != 0 &&
           (strncmp(operand, "--", 2) == 0 || strpbrk(operand, " \t\n"));
}

/* The text and what messages call it; release *own with free(), *read with
 * lh_text_free(). */
static lh_status read_text(cli *c, const char *operand, cli_input *piped,
                           char **read, const char **text, size_t *len,
                           const char **name)
{
    *name = operand;
    if (is_list(operand)) {
        *text = operand;
        *len = strlen(operand);
        *name = "the arguments";
        return LH_OK;
    }
    if (strcmp(operand, "-") == 0) {
        CLI_TRY(cli_input_open(c, operand, piped));
        *text = piped->text;
        *len = piped->len;
        *name = piped->path;
        return LH_OK;
    }
    CLI_TRY(lh_file_read(operand, MOST_BYTES, read, len, &c->err));
    *text = *read;
    return LH_OK;
}

static lh_status import_text(cli *c, const char *text, size_t len,
                             const char *name, const cli_source *source,
                             const cli_machines *machines, const char *folder,
                             const lh_job *cluster, lh_import **out)
{
    lh_draft_site sites[LH_MAX_DATACENTERS] = {{0}};
    lh_draft_options with = {.size = sizeof with, .folder = folder};
    const lh_import_options how = {
        .size = sizeof how, .machines = &with, .cluster = cluster};
    if (!cluster)
        CLI_TRY(cli_find_machines(c, machines, sites, &with));
    CLI_TRY(lh_import_parse((lh_import_source)source->from, text, len, name,
                            &how, out, &c->err));
    for (uint32_t i = 0; i < (*out)->n_noted; i++)
        cli_note(c, "%s", (*out)->noted[i]);
    return LH_OK;
}

lh_status cli_import(cli *c, const char *operand, const cli_source *source,
                     const cli_machines *machines, const char *folder,
                     lh_import **out)
{
    cli_input piped = {0};
    char *read = NULL;
    const char *text = NULL, *name;
    size_t len = 0;
    lh_job *cluster = NULL;
    CLI_TRY(cli_check_links(c, machines));
    lh_status status =
        source->cluster ? read_cluster(c, source->cluster, &cluster) : LH_OK;
    if (status == LH_OK)
        status = read_text(c, operand, &piped, &read, &text, &len, &name);
    if (status == LH_OK)
        status = import_text(c, text, len, name, source, machines, folder,
                             cluster, out);
    lh_job_free(cluster);
    lh_text_free(read);
    cli_input_close(&piped);
    return status;
}

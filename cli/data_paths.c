/* SPDX-License-Identifier: Apache-2.0 */
#include "data_paths.h"

#include <longhaul/experimental/events.h>

#include <stdlib.h>
#include <string.h>

/* Parses one entry LINK=delegated of --path, `text` with `len` characters. Sets
 * links[i] for the pipeline links that LINK matches: a helper thread sends
 * their messages through host memory, so passes do not wait. */
static lh_status read_link(cli *c, const lh_pipeline *p, const char *text,
                           size_t len, bool *links)
{
    static const char delegated[] = "=delegated";
    const size_t tail = sizeof delegated - 1;
    char name[128];
    if (len <= tail || len - tail >= sizeof name ||
        memcmp(text + len - tail, delegated, tail) != 0)
        return cli_usage(c,
                         "--path: '%.*s' is not delegated or LINK=delegated, "
                         "such as 0-1=delegated",
                         (int)(len < 80 ? len : 80), text);
    memcpy(name, text, len - tail);
    name[len - tail] = '\0';
    lh_status status = lh_event_match_links(p, name, links, &c->err);
    if (status != LH_EINPUT)
        return status;
    lh_error why = c->err;
    return cli_error(c, status, "--path: %.440s", why.text);
}

/* Reads --path: 'delegated', or a list of LINK=delegated. On these links, or
 * all, a helper thread sends messages through host memory, so passes do not
 * wait. out->links has a flag per link; NULL: all. */
static lh_status read_links(cli *c, const char *text, const lh_pipeline *p,
                            cli_paths *out)
{
    if (strcmp(text, "delegated") == 0)
        return LH_OK;
    out->links = calloc(lh_pipeline_n_links(p) + (size_t)1, sizeof(bool));
    if (!out->links)
        return cli_no_memory(c);
    out->delegation.links = out->links;
    for (const char *at = text; *at;) {
        size_t len = strcspn(at, ",");
        CLI_TRY(read_link(c, p, at, len, out->links));
        at += len + (at[len] == ',');
    }
    return LH_OK;
}

bool cli_paths_have_effect(const cli_model *model, const lh_pipeline *p)
{
    return model->coupled || strcmp(cli_receives_of(model, p), "early") != 0;
}

lh_status cli_paths_check(cli *c, const char *text, int64_t staging_ns,
                          const lh_pipeline *pipeline, const cli_model *model)
{
    if (!text || staging_ns || cli_paths_have_effect(model, pipeline))
        return LH_OK;
    return cli_usage(c, "--path has no effect: no send blocks without "
                        "--coupled or --receives late, and copies take no time "
                        "without --staging");
}

lh_status cli_paths_read(cli *c, const char *text, int64_t staging_ns,
                         const lh_pipeline *pipeline, cli_model *model,
                         cli_paths *out)
{
    *out = (cli_paths){.delegation = {.size = sizeof(lh_delegation),
                                      .staging_ns = staging_ns}};
    if (!text)
        return LH_OK;
    CLI_TRY(read_links(c, text, pipeline, out));
    return cli_paths_apply(c, pipeline, model, out);
}

lh_status cli_paths_apply(cli *c, const lh_pipeline *pipeline, cli_model *model,
                          cli_paths *out)
{
    const lh_sim_options sim = cli_sim_options(model);
    lh_sim_options how;
    CLI_TRY(lh_delegate(pipeline, &sim, &out->delegation, &out->pipeline, &how,
                        &c->err));
    model->delegated = how.delegated;
    model->coupled = how.coupled_queue;
    model->receives = 1 + (uint32_t)how.receives;
    return LH_OK;
}

void cli_paths_fini(cli_paths *paths)
{
    lh_pipeline_free(paths->pipeline);
    free(paths->links);
}

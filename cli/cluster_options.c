/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster_options.h"

#include "values.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

/* Maximum number of GPUs or nodes of a site, as in a job file. */
enum { MOST = 1 << 24 };

lh_status cli_check_preset(cli *c, const char *option, const char *name,
                           bool is_known, const char *const *names)
{
    char all[400] = "";
    if (is_known)
        return LH_OK;
    for (uint32_t i = 0; names[i]; i++) {
        size_t len = strlen(all);
        snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = cli_find_similar_word(name, names);
    if (near)
        return cli_usage(c,
                         "--%s: unknown name '%.60s'; did you mean %s? Known: "
                         "%s",
                         option, name, near, all);
    return cli_usage(c, "--%s: unknown name '%.60s'; known: %s", option, name,
                     all);
}

/* Copies a list's i-th comma-separated part into `part`; false: there is
 * none. */
static bool find_part(const char *list, uint32_t i, char part[64])
{
    for (; i > 0; i--) {
        list = strchr(list, ',');
        if (!list)
            return false;
        list++;
    }
    const size_t len = strcspn(list, ",");
    snprintf(part, 64, "%.*s", (int)(len < 64 ? len : 63), list);
    return true;
}

/* Copies site i's part of the comma-separated value `list` into `part`. A value
 * with one part applies to all sites; any count but 1 and `sites` is a usage
 * error. */
static lh_status get_site_part(cli *c, uint32_t sites, const char *option,
                               const char *list, uint32_t i, char part[64])
{
    uint32_t n = 1;
    for (const char *at = list; (at = strchr(at, ',')); at++)
        n++;
    if (n > 1 && n != sites)
        return cli_usage(c,
                         "--%s: %" PRIu32 " values for %" PRIu32
                         " site%s; give one, or one for each of --sites",
                         option, n, sites, sites > 1 ? "s" : "");
    find_part(list, n > 1 ? i : 0, part);
    return LH_OK;
}

/* Reads site i's number (1 to MOST) into *out from `list`, the value of
 * --`option`: one number for all `sites` sites, or one per site. `list` NULL
 * (option not given): *out is unchanged. */
static lh_status read_site_count(cli *c, uint32_t sites, const char *option,
                                 const char *list, uint32_t i, uint32_t *out)
{
    char part[64];
    uint64_t count;
    if (!list)
        return LH_OK;
    CLI_TRY(get_site_part(c, sites, option, list, i, part));
    if (!cli_parse_count(part, 1, MOST, &count))
        return cli_usage(c, "--%s: '%s' is not a whole number from 1 to %d",
                         option, part, MOST);
    *out = (uint32_t)count;
    return LH_OK;
}

/* Checks whether the value of --sites lists names of cloud regions rather than
 * a number. */
static bool has_regions(const cli_cluster_options *m)
{
    return strchr(m->sites, ':') || *m->sites < '0' || *m->sites > '9';
}

/* Counts the sites that --sites defines: its number, or its number of regions.
 * 0: not a number from 1 to LH_MAX_DATACENTERS. */
static uint32_t count_sites(const cli_cluster_options *m)
{
    uint64_t n = 1;
    if (!has_regions(m))
        return cli_parse_count(m->sites, 1, LH_MAX_DATACENTERS, &n)
                   ? (uint32_t)n
                   : 0;
    for (const char *at = m->sites; (at = strchr(at, ',')); at++)
        n++;
    return n <= LH_MAX_DATACENTERS ? (uint32_t)n : 0;
}

lh_status cli_check_links(cli *c, const cli_cluster_options *m)
{
    if (has_regions(m) && cli_is_given(c, "latency-ms"))
        return cli_usage(c, "--latency-ms has no effect with cloud regions, "
                            "which have their latencies; change them in the "
                            "job");
    if (count_sites(m) != 1 ||
        (!cli_is_given(c, "latency-ms") && !cli_is_given(c, "link-gbps")))
        return LH_OK;
    return cli_usage(c,
                     "--%s has no effect with one site; it requires --sites 2 "
                     "or more",
                     cli_is_given(c, "latency-ms") ? "latency-ms"
                                                   : "link-gbps");
}

/* Fails with a usage error: --sites has the unknown region `name`; the error
 * lists the most similar region names. */
static lh_status reject_region(cli *c, const char *name)
{
    const char *names[CLI_MOST_SIMILAR + 1];
    const char *all[256] = {NULL};
    char near[400] = "";
    for (uint32_t i = 0; i < 255 && lh_cloud_region_name(i); i++)
        all[i] = lh_cloud_region_name(i);
    cli_find_similar_words(name, all, names);
    for (uint32_t i = 0; names[i]; i++) {
        const size_t len = strlen(near);
        snprintf(near + len, sizeof near - len, "%s%s", i ? ", " : "",
                 names[i]);
    }
    return cli_usage(c,
                     "--sites: unknown region '%.60s'; similar: %s "
                     "(docs/formats/cloud.md lists all)",
                     name, near);
}

/* Sets site i's region, if --sites has regions. */
static lh_status set_region(cli *c, const cli_cluster_options *m, uint32_t i,
                            lh_draft_site *site)
{
    char part[64];
    if (!has_regions(m))
        return LH_OK;
    find_part(m->sites, i, part);
    for (uint32_t k = 0; lh_cloud_region_name(k); k++)
        if (strcmp(lh_cloud_region_name(k), part) == 0)
            site->region = lh_cloud_region_name(k);
    return site->region ? LH_OK : reject_region(c, part);
}

/* Prints a note if the list prices of some GPUs are unknown: the job then has
 * no prices. */
static void note_unpriced(cli *c, const lh_draft_site *sites, uint32_t n)
{
    uint32_t count = 0, first = 0;
    char others[40] = "";
    for (uint32_t i = 0; i < n; i++)
        if (sites[i].region &&
            !(lh_cloud_usd_per_gpu_hour(sites[i].region, sites[i].gpu) > 0) &&
            count++ == 0)
            first = i;
    if (!count)
        return;
    if (count > 1)
        snprintf(others, sizeof others, " and %" PRIu32 " other region%s",
                 count - 1, count > 2 ? "s" : "");
    cli_note(c,
             "no list price of %s in %s%s is known, so that the job has no "
             "prices; add usd_per_gpu_hour to every datacenter, or give "
             "--gpu-hour to plan and size",
             sites[first].gpu, sites[first].region, others);
}

lh_status cli_build_cluster(cli *c, const cli_cluster_options *m,
                            lh_draft_site sites[LH_MAX_DATACENTERS],
                            lh_draft_options *out)
{
    const uint32_t n = count_sites(m);
    if (n == 0)
        return cli_usage(c,
                         "--sites: '%.60s' is not a whole number from 1 to %u, "
                         "and not a list of cloud regions such as "
                         "gcp:us-east4,gcp:europe-west4",
                         m->sites, LH_MAX_DATACENTERS);
    for (uint32_t i = 0; i < n; i++) {
        char part[64];
        CLI_TRY(set_region(c, m, i, &sites[i]));
        CLI_TRY(get_site_part(c, n, "gpu", m->gpu, i, part));
        const lh_gpu *gpu = lh_gpu_preset(part);
        CLI_TRY(
            cli_check_preset(c, "gpu", part, gpu != NULL, lh_gpu_presets()));
        sites[i].gpu = gpu->name;
        CLI_TRY(read_site_count(c, n, "nodes", m->nodes, i, &sites[i].nodes));
        CLI_TRY(read_site_count(c, n, "gpus-per-node", m->gpus_per_node, i,
                                &sites[i].gpus_per_node));
    }
    note_unpriced(c, sites, n);
    out->n_sites = n;
    out->sites = sites;
    out->gbps = m->link_gbps;
    out->latency_ns = llround(m->latency_ms * 1e6);
    return LH_OK;
}

const char *cli_output_folder(const cli *c, char *folder, size_t room)
{
    const char *file = c->common.output;
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (!slash || (size_t)(slash - file) >= room)
        return ".";
    snprintf(folder, room, "%.*s", (int)(slash == file ? 1 : slash - file),
             file);
    return folder;
}

lh_status cli_check_not_existing(cli *c, bool force)
{
    struct stat info;
    const char *file = c->common.output;
    if (!file) {
        return force ? cli_usage(c, "--force requires -o FILE") : LH_OK;
    }
    if (force || stat(file, &info) != 0 || !S_ISREG(info.st_mode))
        return LH_OK;
    return cli_error(c, LH_EIO,
                     "%s already exists; name another file, or overwrite it "
                     "with --force",
                     file);
}

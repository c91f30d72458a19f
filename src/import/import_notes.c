/* SPDX-License-Identifier: Apache-2.0 */
#include "import/import_own.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void lhi_import_ignore(lhi_imported *in, const char *name)
{
    lhi_text_add(&in->ignored, name, strlen(name) + 1);
    in->n_ignored++;
}

void lhi_import_note(lhi_imported *in, const char *format, ...)
{
    char note[400];
    va_list list;
    va_start(list, format);
    vsnprintf(note, sizeof note, format, list);
    va_end(list);
    lhi_text_add(&in->noted, note, strlen(note) + 1);
    in->n_noted++;
}

uint64_t lhi_import_gpus(const lh_import_options *options)
{
    const lh_draft_options *m = options->machines;
    uint64_t gpus = 0;
    if (options->cluster)
        return options->cluster->n_gpus;
    for (uint32_t i = 0; m && i < m->n_sites; i++) {
        if (!m->sites[i].nodes)
            return 0;
        gpus += (uint64_t)m->sites[i].nodes * lhi_draft_node_gpus(&m->sites[i]);
    }
    return gpus;
}

lh_status lhi_import_find_gpus(const char *file, uint32_t launched,
                               const lh_import_options *options, uint64_t *gpus,
                               lh_error *err)
{
    const uint64_t there = lhi_import_gpus(options);
    if (there && launched && there != launched)
        return lhi_fail(err, LH_EINPUT,
                        "%s: starts %u processes, but there are %llu GPUs; "
                        "name the machines that run it",
                        file, launched, (unsigned long long)there);
    *gpus = there ? there : launched;
    return LH_OK;
}

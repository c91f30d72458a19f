/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/import/import_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void lhi_import_ignore(lhi_imported_job *in, const char *name)
{
    lhi_text_add(&in->ignored, name, strlen(name) + 1);
    in->n_ignored++;
}

void lhi_import_note(lhi_imported_job *in, const char *format, ...)
{
    char note[400];
    va_list list;
    va_start(list, format);
    vsnprintf(note, sizeof note, format, list);
    va_end(list);
    lhi_text_add(&in->noted, note, strlen(note) + 1);
    in->n_noted++;
}

uint64_t lhi_import_count_gpus(const lh_import_options *options)
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Files that an input file names. */
#include "network/optical/network.h"

#include <string.h>

lh_status lhi_optical_resolve_file(const lhi_doc *doc, const lhi_node *node,
                                   lhi_arena *mem, const char **path,
                                   lh_error *err)
{
    const char *name, *slash = strrchr(doc->file, '/');
    LHI_TRY(lhi_node_get_string(doc, node, &name, err));
    size_t folder =
        slash && name[0] != '/' ? (size_t)(slash - doc->file) + 1 : 0;
    char *text = LHI_NEW(mem, char, folder + strlen(name) + 1);
    if (!text)
        return lhi_fail_nomem(err);
    memcpy(text, doc->file, folder);
    strcpy(text + folder, name);
    *path = text;
    return LH_OK;
}

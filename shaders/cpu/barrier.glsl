// A barrier makes all that the workgroup stored visible to all its invocations. A workgroup of one subgroup takes a subgroup's
// barrier: llvmpipe runs a shader with a workgroup's barrier at half the speed.
#extension GL_KHR_memory_scope_semantics : require

void state_barrier()
{
    if (WORKGROUP == LANES) {
        subgroupBarrier();
        return;
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

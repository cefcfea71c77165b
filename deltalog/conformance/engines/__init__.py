"""The adapters of engines. Each imports its engine, so that it can be imported only where its engine is installed;
``deltalog.conformance.environments`` says which adapter belongs to which engine."""

"""``tb-memplugin view``: the tab's page without TensorBoard's frame, served by TensorBoard's own server."""

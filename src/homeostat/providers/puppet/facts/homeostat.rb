# Puppet loads this with the facts, before it applies anything. Its agent remembers what it made so, and tells by that which changes are
# corrective; `puppet apply` does the same if it is let.
require 'puppet/transaction/persistence'

Puppet::Transaction::Persistence.prepend(
  Module.new do
    def enabled?(catalog)
      catalog.host_config?
    end
  end
)
